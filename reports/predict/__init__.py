"""How is a predicted step shown? As text, as one row, as a document; and what predictions are worth, as a page.

Not claimed: anything beyond the answer; nothing is calculated here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
