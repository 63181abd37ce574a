"""What follows from a paper's printed inputs, beside its printed results?

Recomputes printed results from printed inputs. It does not judge the inputs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
