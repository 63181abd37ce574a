"""Records and how they are stored: the package below all others.

Knows rows, files and faults. It does not know what a number means.
"""
