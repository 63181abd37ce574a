"""How is somebody else's model run, and left as it was?

Restores the state that it knows of: parameters, buffers, modes, hooks and random numbers. State that a model keeps
elsewhere is not restored.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
