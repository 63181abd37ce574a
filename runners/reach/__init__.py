"""What could a step take at best on a device that you do not have, and what will it take? (`runners.reach`)"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
