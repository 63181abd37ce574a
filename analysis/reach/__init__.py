"""What could a step reach at best on a device that nobody here has?

A bound is a least time: nothing that is measured may be under it. Not claimed: that a device comes near to it, or that
a least time says how long a step takes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
