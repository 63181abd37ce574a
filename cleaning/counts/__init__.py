"""What do counters say in one convention, and where do they disagree?

Brings numbers to one convention and logs each change. It does not decide which counter is right.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
