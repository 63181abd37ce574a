from .changes import CHANGES
from .parts import TrialParts
from .trials import try_change, what_if

__all__ = [
    "CHANGES",
    "TrialParts",
    "try_change",
    "what_if",
]
