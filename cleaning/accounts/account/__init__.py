"""Why is a counter's number not the exact count?

A cause is listed only if its FLOP follow from the rule of the counter. The rest is shown as unexplained.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
