"""How does a step run without values, memory or device?

Shapes, dtypes and storages without values. A model whose operations depend on values cannot run this way.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
