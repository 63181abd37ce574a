from .data import Trace
from .kernel_times import time_document
from .perfetto import perfetto_events
from .text import document, impossible, kernels_csv, to_text

__all__ = [
    "Trace",
    "document",
    "impossible",
    "kernels_csv",
    "perfetto_events",
    "time_document",
    "to_text",
]
