from .fast_count import FastCount
from .reference import MakeOptimizer, trace_model

__all__ = [
    "FastCount",
    "MakeOptimizer",
    "trace_model",
]
