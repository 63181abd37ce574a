"""What did others measure on real GPUs, and how does mine compare? (`python -m runners.atlas`)"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
