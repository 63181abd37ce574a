"""How far is each counter from the exact count, and why?

Shows each counter's own number beside the exact count, with its account.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
