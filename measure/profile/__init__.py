"""What does each operation of a step take?"""
