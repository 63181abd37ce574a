"""How do workloads differ?

Shows what `analysis.characterize` made of the recordings.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
