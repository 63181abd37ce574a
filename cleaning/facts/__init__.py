"""What can a row or a table be, by itself and without another file?

Checks what must hold for any row. That a row which passes is true is not claimed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
