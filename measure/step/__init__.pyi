from .count import StepCount
from .mixture import MixtureFlop, has_experts, mixture, mixture_of
from .pinned_step import read_baseline, slower_line, write_baseline

__all__ = [
    "MixtureFlop",
    "StepCount",
    "has_experts",
    "mixture",
    "mixture_of",
    "read_baseline",
    "slower_line",
    "write_baseline",
]
