"""Which workloads are there, by name, before anything is built?

Names and facts only: nothing is built, and torch is not imported.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
