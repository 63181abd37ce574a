"""How are published steps of real GPUs shown? As text, as a page of documentation and as a figure.

Not claimed: anything beyond the rows; nothing is measured or counted here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
