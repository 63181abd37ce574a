"""Which operations does a training step run?

Sees what reaches the dispatcher. Work outside of it (NumPy, threads, custom kernels without an operator) is reported
where it is noticed, and is not counted.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
