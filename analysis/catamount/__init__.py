"""What would Catamount have counted?

A convention beside ours, for comparison with Catamount's published numbers. Nothing else in the project counts by it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
