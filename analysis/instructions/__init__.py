"""Do executed floating-point instructions agree with the count by definition, and if not, why?

A reason says what the kinds of instructions show; it is not proved to be the whole difference. Nothing is run here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
