"""What do all commands share on the command line?

Shared by all commands. It knows no command.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
