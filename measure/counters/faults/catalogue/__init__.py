"""Which faults does each counter have, and are they still there?

Holds for the installed version when it was run. A fault that is not listed may exist.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
