"""What does each framework's own formula say of a training step, and why is it not the exact count?

Exact counts are closed forms of a configuration's products, held against a trace by tests. Not claimed: anything of a
formula that is not in `rules.py`; what no cause explains is told as unexplained.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
