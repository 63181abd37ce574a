"""What does this device reach in single kernels?

The best rate among the kernels that were tried. A faster kernel may exist.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
