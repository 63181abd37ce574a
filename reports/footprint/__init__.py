"""How much memory, and how sure?

Shows predictions with their measured errors.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
