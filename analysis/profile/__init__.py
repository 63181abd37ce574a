"""What bounds each operation of a step, and what would help?"""
