"""What does each operation of a step take?

Times of single operations include the overhead of the profiler. Totals are compared with steps without it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
