"""What does the dispatcher say about one call of an operator?

Reads the schemas of operators. It does not know costs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
