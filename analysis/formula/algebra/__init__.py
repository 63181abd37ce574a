"""What can be asked of a formula?

Works on any formula in the project's symbols. It does not know models.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
