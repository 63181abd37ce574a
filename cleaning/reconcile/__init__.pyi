from .backward_ratio import Closed, closed_form, ratios
from .batch_law import ENOUGH, Law, Series, culprits, law_of, listed
from .run import HEADLINES, METHODS, Built, View, build

__all__ = [
    "Built",
    "Closed",
    "ENOUGH",
    "HEADLINES",
    "Law",
    "METHODS",
    "Series",
    "View",
    "build",
    "closed_form",
    "culprits",
    "law_of",
    "listed",
    "ratios",
]
