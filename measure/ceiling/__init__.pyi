from .ceilings import DTYPES, Bench, ceilings_by_precision, measure_ceilings
from .quick import measure_machine
from .trials import CACHE, ESSENTIAL, LAYOUTS, SPENT, Move, Trial, moves, shapes, sweep, titled

__all__ = [
    "Bench",
    "CACHE",
    "DTYPES",
    "ESSENTIAL",
    "LAYOUTS",
    "Move",
    "SPENT",
    "Trial",
    "ceilings_by_precision",
    "measure_ceilings",
    "measure_machine",
    "moves",
    "shapes",
    "sweep",
    "titled",
]
