"""What did torch.profiler, NVTX or Nsight record of a step?

Starts profilers and reads what they recorded in this process. Files of others are read by `measure.trace`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
