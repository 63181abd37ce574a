"""Records and how they are kept: the package below all others.

Knows rows, files and faults. It does not know what a number means.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
