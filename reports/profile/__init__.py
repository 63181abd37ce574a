"""Where does a step's time go?

Shows one profiled step. Other steps of the same model may differ.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
