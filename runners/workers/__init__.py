"""How is a task done in a process of its own?

Starts, watches and ends processes. It does not know what their tasks measure.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
