from .model_operators import by_counter_and_phase, is_model_flop, of_the_model
from .pipeline import Cleaned, clean
from .steps import Outcome
from .sums import known_sum, whole_sum

__all__ = [
    "Cleaned",
    "Outcome",
    "by_counter_and_phase",
    "clean",
    "is_model_flop",
    "known_sum",
    "of_the_model",
    "whole_sum",
]
