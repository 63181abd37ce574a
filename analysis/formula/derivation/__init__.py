"""What does a step cost, as a formula in its sizes?

A formula is interpolated and then checked at further points. It holds between sizes at which the operations stay the
same.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
