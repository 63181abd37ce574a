"""What was a recorded call or kernel, as an operation?

Reads calls and names of kernels. What cannot be derived from recorded sizes is unknown and is not guessed.
"""
