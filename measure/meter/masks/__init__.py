"""What do the masks of a loop's batches leave of its attention?

Padding alone. Which masks a model makes without it is in `measure.model`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
