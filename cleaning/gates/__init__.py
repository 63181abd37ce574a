"""May this run be published?

Finds contradictions within a run. Falsified data that is consistent passes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
