"""Which operations does a training step run?

Records the operations that reach the dispatcher. Work outside of it (NumPy, threads, custom kernels without an
operator) is reported where it is noticed, and is not counted.
"""
