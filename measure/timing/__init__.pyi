from .blocks import (
    agree,
    blocks_in_order,
    measure_blocks,
    measure_phases,
    measure_stretch,
    shortfall,
    step_time_s,
    warm_up,
)
from .clocks import Clock, clock_for
from .pairs import PairTiming, measure_pairs
from .profiler_ranges import DOMAIN, Mark, Ranges, unheard
from .protocols import TIMED_WORKS, Protocol
from .suspension import WARNING

__all__ = [
    "Clock",
    "DOMAIN",
    "Mark",
    "PairTiming",
    "Protocol",
    "Ranges",
    "TIMED_WORKS",
    "WARNING",
    "agree",
    "blocks_in_order",
    "clock_for",
    "measure_blocks",
    "measure_pairs",
    "measure_phases",
    "measure_stretch",
    "shortfall",
    "step_time_s",
    "unheard",
    "warm_up",
]
