"""How is a transformer step split over devices?

A first-order model of computation and communication. Contention, stragglers and overlap beyond the stated rules are
left out.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
