from .count import StepCount
from .pinned_step import read_baseline, slower_line, write_baseline

__all__ = [
    "StepCount",
    "read_baseline",
    "slower_line",
    "write_baseline",
]
