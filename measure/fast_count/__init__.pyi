from .fast_count import DREW, CountRow, FastCount, MaskedFlop
from .product_cost import form_of, shapes_before
from .reference import MakeOptimizer, trace_model

__all__ = [
    "DREW",
    "CountRow",
    "FastCount",
    "MakeOptimizer",
    "MaskedFlop",
    "form_of",
    "shapes_before",
    "trace_model",
]
