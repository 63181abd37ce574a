"""The two faults that measuring meets, beside `ValueError` (the caller's mistake).

Nothing here decides what happens next: a command turns `Unavailable` into a row with a reason and goes on,
and stops the one analysis that met `Inconsistent`.
"""


class Unavailable(Exception):
    """Something this machine or installation does not offer: no GPU, no permission, no such counter."""


class DeviceLost(Unavailable):
    """The device is gone for good, or must be reset: nothing more can be measured on it in this sitting."""


class Inconsistent(Exception):
    """The data contradict each other, so that no number can be given from them."""


class StoreFault(Exception):
    """The run directory could not be written; whole rows are kept and the run can be resumed."""
