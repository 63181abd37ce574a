from .dependencies import BEFORE, Graph, graph
from .minimum import Minimal, minimal

__all__ = [
    "BEFORE",
    "Graph",
    "Minimal",
    "graph",
    "minimal",
]
