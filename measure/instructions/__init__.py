"""Which floating-point instructions does an operator really execute on this processor, and on how many lanes?

Counted by valgrind, which runs AVX2 at most: it is the library's code for AVX2 that is counted. No time is taken.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
