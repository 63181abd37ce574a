"""Data that Fathom's networks are fed where none is on disk.

Synthetic data with the shapes and statistics that a step depends on. It replaces no data set.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
