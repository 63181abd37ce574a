"""How is a model built and one step of it trained?

Runs one step. It does not time it, and it does not train to an accuracy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
