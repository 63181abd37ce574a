"""What would make this training step faster? Each change is tried on this model and device.

Every change is tried by itself, in blocks interleaved with those of the unchanged step. Not claimed: what two changes
bring together, what a change does to the accuracy, or anything of a change that was not tried.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
