"""What did others measure on real GPUs? Published steps: read from their sources' files, filtered, compared.

Nothing here is measured by this project. Facts of a row are its source's; not claimed: that the source measured well.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
