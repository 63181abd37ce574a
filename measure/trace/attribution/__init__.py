"""Which call, phase and module does each kernel belong to?

Assigns kernels by correlation and nesting. A kernel without a recorded launch has no call.
"""
