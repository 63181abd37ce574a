"""How is a FLOP counter run, and what becomes of it?

Runs counters and keeps what they return. It does not correct them; `cleaning.accounts` explains them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
