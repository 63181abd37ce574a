"""Models that others made, by where they come from.

Builds what others defined, with random weights where weights would have to be downloaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
