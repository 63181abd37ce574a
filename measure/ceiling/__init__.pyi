from .ceilings import DTYPES, Bench, ceiling_kernels, ceilings_by_precision, measure_ceilings
from .core_peaks import KERNEL_UNITS, issue_rows, read_rows
from .quick import measure_machine
from .trials import CACHE, ESSENTIAL, LAYOUTS, SPENT, Move, Trial, moves, shapes, sweep, titled

__all__ = [
    "Bench",
    "CACHE",
    "DTYPES",
    "ESSENTIAL",
    "KERNEL_UNITS",
    "LAYOUTS",
    "Move",
    "SPENT",
    "Trial",
    "ceiling_kernels",
    "ceilings_by_precision",
    "issue_rows",
    "measure_ceilings",
    "measure_machine",
    "moves",
    "read_rows",
    "shapes",
    "sweep",
    "titled",
]
