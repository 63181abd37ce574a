"""How is the answer of `runners.reach` shown? As text, as one row and as a document.

Not claimed: anything beyond the answer; nothing is calculated here but ratios of its numbers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
