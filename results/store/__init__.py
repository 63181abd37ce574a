"""How rows are kept and read: append-only, committed, checked

Keeps rows safe from crashes and finds edits by accident. It is no protection against someone who recomputes the
seals.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
