from .data import Trace, has_states
from .page import page
from .perfetto import perfetto_events
from .text import document, impossible, kernels_csv, to_text

__all__ = [
    "Trace",
    "document",
    "has_states",
    "impossible",
    "kernels_csv",
    "page",
    "perfetto_events",
    "to_text",
]
