"""What does a profile file of any profiler hold?

Reads what the file holds. Nothing in a file is executed, and sizes are limited (`results.limits`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
