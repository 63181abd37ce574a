"""How is the audit of frameworks' formulas shown? As text, CSV, documents and a page of documentation.

Not claimed: anything beyond the rows; nothing is counted or run here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
