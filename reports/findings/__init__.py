"""What do the published runs say?

Statements about the published runs only. Other machines may differ.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
