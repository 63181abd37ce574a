"""What does one training step of somebody's model cost, asked from Python in one call?

One model and one input at a time. A sweep is `runners.sweep`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
