"""How many FLOP, from one forward pass on meta tensors?

Products only, predicted from the forward pass. `measure.operations` traces the whole step.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
