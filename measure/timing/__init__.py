"""How long does a step take?

Times whole blocks of steps between synchronizations. Times of single operations are in `measure.profile`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
