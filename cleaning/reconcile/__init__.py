"""Raw rows of a run in, everything derived of it out: do its sources agree?

Reports where sources disagree. It does not choose between them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
