from .fast_count import CountRow, FastCount
from .reference import MakeOptimizer, trace_model

__all__ = [
    "CountRow",
    "FastCount",
    "MakeOptimizer",
    "trace_model",
]
