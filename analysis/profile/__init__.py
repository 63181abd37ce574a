"""What bounds each operation of a step, and what would help?

Bounds assume that each input is read once and each output is written once. What an advice would gain is an estimate
until it is measured.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
