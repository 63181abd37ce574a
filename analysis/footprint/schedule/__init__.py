"""Which order of the operations needs the least memory?

Orders are of the operations of a traced step. That a framework would run them in this order is not claimed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
