"""How do workloads differ?

Works on recorded times and counts. It describes the workloads that were recorded and does not extend to others.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
