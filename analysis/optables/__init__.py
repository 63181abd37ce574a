"""How is a table of operations written and transformed without a model?

Builds and edits tables for analysis. No table from here was executed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
