"""Fathom's networks.

The networks as coded and as in the paper, with random weights.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
