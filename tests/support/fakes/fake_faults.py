"""Reproductions that hang, die, patch, print and lie: what `measure/counters/faults/catalogue/running.py` must live
through."""

from __future__ import annotations

import os
import time

import torch.nn.functional as F

from measure.counters.faults.catalogue.fault import Fault

LINEAR = F.linear


def patches() -> int:
    """Patches torch."""
    F.linear = None
    return 1


def after_the_patch() -> bool:
    """Sees what was patched."""
    return F.linear is LINEAR


def prints() -> int:
    """Prints."""
    print("noise")
    os.write(2, b"noise")
    return 2


def hangs() -> int:
    """Does not come back."""
    time.sleep(60)
    return 1


def dies() -> int:
    """Takes its process with it."""
    os._exit(3)


def raises() -> int:
    """Raises."""
    raise LookupError("a\nb")


KIND = ("crash", "formula")
FAULTS = (
    Fault(patches, *KIND, 1, 2),
    Fault(after_the_patch, *KIND, False, True),
    Fault(hangs, *KIND, 1, 2),
    Fault(dies, *KIND, 1, 2),
    Fault(raises, *KIND, "raises LookupError", 2),
    Fault(prints, *KIND, 1, 3),
    Fault(prints, *KIND, 2, 3, versions="<0.1"),
    Fault(prints, *KIND, 7, 3, versions="<0.1"),
)
