from .comparison import (
    COUNTED,
    DIFFERENT,
    EQUAL,
    UNEXPLAINED,
    CountedProduct,
    InstructionComparison,
    compare,
    compare_calls,
    parts_of,
    taps_inside,
)

__all__ = [
    "COUNTED",
    "CountedProduct",
    "DIFFERENT",
    "EQUAL",
    "InstructionComparison",
    "UNEXPLAINED",
    "compare",
    "compare_calls",
    "parts_of",
    "taps_inside",
]
