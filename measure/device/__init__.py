"""What machine is this, and what does it say of itself?

Facts and telemetry as the operating system and the driver report them. They are recorded and not verified here; the
gates do that.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
