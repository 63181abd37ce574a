"""The figures of a run, each from one derived table.

Each figure is drawn from one derived table and from nothing else.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
