"""What can this device really do?

Shows the kernels that were tried, with their spread.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
