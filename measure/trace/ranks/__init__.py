"""What does the recording of one rank hold of computing, copying and communicating?

Not claimed: whose fault a wait is; `analysis.ranks` compares ranks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
