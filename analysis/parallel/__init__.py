"""What does each rank of a parallel training step do, and what do all of them do together?

Arithmetic over what `measure.parallel` recorded. No time is derived here: `analysis.project` predicts steps.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
