from .backward_ratio import EXACT, INPUT, REASONS, Backward, Missing, backward
from .batch_law import counter_laws, exact_laws
from .reconcile import PHASES, at_least, exact, unknown_calls

__all__ = [
    "Backward",
    "EXACT",
    "INPUT",
    "Missing",
    "PHASES",
    "REASONS",
    "at_least",
    "backward",
    "counter_laws",
    "exact",
    "exact_laws",
    "unknown_calls",
]
