"""Turns a recorded call or kernel into an operation.

Reads calls and names of kernels. What recorded sizes do not show is unknown, never guessed.
"""
