from .changes import CHANGES
from .parts import TrialParts
from .what_if import try_change, what_if

__all__ = [
    "CHANGES",
    "TrialParts",
    "try_change",
    "what_if",
]
