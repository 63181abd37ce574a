"""What is a noisy number worth, and do two of them differ?

Intervals cover noise within the blocks that were measured. They say nothing of differences between machines, or
between days.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
