"""What can a device do at best, and who says so?

Datasheet values carry their source and are found only by the exact name that the driver reports. A device without a
row has no peak.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
