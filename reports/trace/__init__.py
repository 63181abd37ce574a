"""What does a recorded profile say?

Shows one recording. A total with an unknown part is shown as a lower bound.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
