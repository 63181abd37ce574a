"""What do other packages' tables of peaks say, beside ours, for a reader?

Not claimed: anything of a package or version that was not asked.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
