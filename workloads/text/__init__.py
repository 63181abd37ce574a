"""Models of text and speech written here.

Standard architectures with random weights and random tokens.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
