"""Fathom's real data sets, read from files.

Reads files that the user has. Nothing is downloaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
