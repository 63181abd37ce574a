"""What was a recorded call or kernel, as an operation?

Reads calls and names of kernels. What cannot be derived from recorded sizes is unknown and is not guessed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
