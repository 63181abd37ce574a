"""What fraction of a peak does training reach?

Divides what was measured by peaks with a source. Where a numerator or denominator is unknown, the ratio is unknown.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
