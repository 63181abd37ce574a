from .callgrind import count_calls, count_instructions, executions
from .decoding import Code, arithmetic, lanes_of
from .operators import OPERATORS
from .perf_counters import count_flop, flop_counters

__all__ = [
    "Code",
    "OPERATORS",
    "arithmetic",
    "count_calls",
    "count_flop",
    "count_instructions",
    "executions",
    "flop_counters",
    "lanes_of",
]
