"""What does this device reach in single kernels?

The best rate among the kernels that were tried. A faster kernel may exist.
"""
