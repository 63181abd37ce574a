from .comparison import (
    COUNTED,
    DIFFERENT,
    EQUAL,
    UNEXPLAINED,
    InstructionComparison,
    compare,
    compare_calls,
    taps_inside,
)

__all__ = [
    "COUNTED",
    "DIFFERENT",
    "EQUAL",
    "InstructionComparison",
    "UNEXPLAINED",
    "compare",
    "compare_calls",
    "taps_inside",
]
