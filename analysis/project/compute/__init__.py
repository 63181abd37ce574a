"""What do GPU-hours and budgets buy?

Follows from published utilizations and scaling laws, each with its source. It does not know prices of today.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
