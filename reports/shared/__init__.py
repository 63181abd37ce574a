"""How does anything of ours look: numbers, columns, figures, pages?

Presentation only: no number is computed here but for its rounding.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
