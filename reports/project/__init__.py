"""What will training take?

Shows projections with the inputs that they depend on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
