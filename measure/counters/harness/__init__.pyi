from .batch_law import extrapolate
from .corrected import flop_counter_mode
from .isolation import batches_to_count, count_isolated, prepare, record_isolated
from .recurrent import recurrent_multiply_adds
from .registry import COUNTERS, install_line
from .rows import Counted, spread
from .uncounted import UncountedCalls

__all__ = [
    "COUNTERS",
    "Counted",
    "UncountedCalls",
    "batches_to_count",
    "count_isolated",
    "extrapolate",
    "flop_counter_mode",
    "install_line",
    "prepare",
    "record_isolated",
    "recurrent_multiply_adds",
    "spread",
]
