"""What did a recording count of each kernel, once and without gaps?

Corrects counts where sizes were recorded. A product without sizes has no count, and the total of its phase is
unknown.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
