"""How long would a step of this model take on a device that you do not have? (`python -m runners.predict`)"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
