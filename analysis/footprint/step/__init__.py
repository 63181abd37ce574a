"""How much memory does a step need, and which batch fits?

Predicts tensors and PyTorch's caching allocator. Workspaces of libraries are an allowance, and memory that a CPU
kernel takes for itself is not included.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
