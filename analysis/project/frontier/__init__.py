"""What does training to a target take, and on which machine?

Extends learning curves beyond the data that they were fitted to. An interval covers the stated uncertainty of the
inputs only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
