"""What was a recorded call or kernel, as an operation?"""
