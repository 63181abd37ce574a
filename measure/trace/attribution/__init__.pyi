from .nesting import NODE, OPERATOR, Flags, Ints
from .phases import steps
from .recording import (
    LAUNCH_PLACES,
    Recording,
    calls_table,
    flows_table,
    gaps_table,
    kernels_table,
    of_process,
    ranges_table,
    table,
)

__all__ = [
    "Flags",
    "Ints",
    "LAUNCH_PLACES",
    "NODE",
    "OPERATOR",
    "Recording",
    "calls_table",
    "flows_table",
    "gaps_table",
    "kernels_table",
    "of_process",
    "ranges_table",
    "steps",
    "table",
]
