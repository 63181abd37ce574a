"""torchvision's models and their data.

torchvision's architectures with random weights; random images, or CIFAR-10 from files that the user has.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
