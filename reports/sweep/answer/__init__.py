"""What did a sweep find?

Every sentence follows from derived rows, and says where a cell did not converge.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
