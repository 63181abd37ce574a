"""What does a framework's own published formula answer? It is run from its package, in a process of its own.

Not claimed: that the package's training loop works; only its formula is called.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
