from .comparison import (
    COUNTED,
    DIFFERENT,
    EQUAL,
    UNEXPLAINED,
    InstructionComparison,
    Part,
    compare,
    compare_calls,
    parts_of,
    taps_inside,
)

__all__ = [
    "COUNTED",
    "DIFFERENT",
    "EQUAL",
    "InstructionComparison",
    "Part",
    "UNEXPLAINED",
    "compare",
    "compare_calls",
    "parts_of",
    "taps_inside",
]
