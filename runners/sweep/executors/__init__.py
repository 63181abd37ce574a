"""Where are the cells of a sweep measured: here, or on the nodes of a Ray cluster?

Ray decides which device a slot gets, and when; this package only hands cells to slots that are there, and keeps their
rows. It does not know how a cell is measured (`runners.sweep.session`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
