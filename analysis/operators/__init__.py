"""What is an operation, and what does it cost in FLOP and bytes?

Counts what the definition of an operation requires. What a kernel does beyond that (padding, recomputation, Winograd)
is not counted, and an operator without a row has no count.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
