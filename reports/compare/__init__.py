"""Do two runs differ?

Says whether two runs differ, and not why.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
