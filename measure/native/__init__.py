"""Which rates can one core of this processor reach by itself? A small C program, compiled here and run beside torch.

Not claimed: anything where there is no C compiler; nothing is shipped compiled.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
