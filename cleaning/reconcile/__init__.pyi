from .backward_ratio import Closed, closed_form, ratios
from .batch_law import ENOUGH, Law, Series, culprits, law_of, listed
from .device_repeats import devices_sentence
from .run import Each, build, by_cell
from .variants import Variant
from .view import HEADLINES, METHODS, Built, View

__all__ = [
    "Built",
    "Closed",
    "ENOUGH",
    "Each",
    "HEADLINES",
    "Law",
    "METHODS",
    "Series",
    "Variant",
    "View",
    "build",
    "by_cell",
    "closed_form",
    "culprits",
    "devices_sentence",
    "law_of",
    "listed",
    "ratios",
]
