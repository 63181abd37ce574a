"""What can a counter count, see or miss?

Terms only. It does not run a counter or a model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
