from .data import Trace
from .perfetto import perfetto_events
from .text import document, impossible, kernels_csv, to_text

__all__ = [
    "Trace",
    "document",
    "impossible",
    "kernels_csv",
    "perfetto_events",
    "to_text",
]
