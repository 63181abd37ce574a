"""What does a model cost, as formulas?

Shows formulas exactly. Only their values at points are rounded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
