from .comparison import (
    COUNTED,
    DIFFERENT,
    EQUAL,
    UNEXPLAINED,
    InstructionComparison,
    compare,
    compare_calls,
    compare_operations,
)
from .convolutions import taps_inside
from .parts import CountedProduct, parts_of
from .sums import executed_additions

__all__ = [
    "COUNTED",
    "CountedProduct",
    "DIFFERENT",
    "EQUAL",
    "InstructionComparison",
    "UNEXPLAINED",
    "compare",
    "compare_calls",
    "compare_operations",
    "executed_additions",
    "parts_of",
    "taps_inside",
]
