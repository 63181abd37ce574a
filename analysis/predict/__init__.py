"""How long would a step take on a device that nobody here has? Fitted on steps that others published.

Not claimed: that a rate fitted on one generation of devices holds on the next; each prediction has an interval whose
coverage was counted on what the fit had not seen.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
