"""What utilization does somebody's own training loop reach, measured while it trains?

Measures without synchronizing the device. A failure of the meter is one warning and never an error of the training.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
