"""Which call, phase and module does each kernel belong to?

Assigns kernels by correlation and nesting. A kernel without a recorded launch has no call.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
