"""What would the table of peaks in another package say of a device?

Taken from the package's own published code and asked in a process of its own. Not claimed: that the package uses the
answer in every place, nor that it is right; `analysis/devices/peak_verdicts.py` judges.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
