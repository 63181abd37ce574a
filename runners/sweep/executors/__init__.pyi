from .choice import EXECUTORS, LOCAL, Executor, Telemetered, check_executor, each_model, open_slots
from .sitting import peak_row, sitting_of

__all__ = [
    "EXECUTORS",
    "Executor",
    "LOCAL",
    "Telemetered",
    "check_executor",
    "each_model",
    "open_slots",
    "peak_row",
    "sitting_of",
]
