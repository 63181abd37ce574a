from .graph_terms import FIXED, QUANTITIES, Term, terms
from .rules import KEPT, RULES, footprint, optimizer_of

__all__ = [
    "FIXED",
    "KEPT",
    "QUANTITIES",
    "RULES",
    "Term",
    "footprint",
    "optimizer_of",
    "terms",
]
