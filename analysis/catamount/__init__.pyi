from .graph_terms import FIXED, QUANTITIES, terms
from .rules import KEPT, RULES, footprint, optimizer_of

__all__ = [
    "FIXED",
    "KEPT",
    "QUANTITIES",
    "RULES",
    "footprint",
    "optimizer_of",
    "terms",
]
