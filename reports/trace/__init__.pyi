from .data import Trace, has_states
from .page import to_html
from .perfetto import perfetto_events
from .ranks import ranks_document, ranks_text
from .ranks_page import ranks_html
from .text import document, impossible, kernels_csv, to_text

__all__ = [
    "Trace",
    "document",
    "has_states",
    "impossible",
    "kernels_csv",
    "perfetto_events",
    "ranks_document",
    "ranks_html",
    "ranks_text",
    "to_html",
    "to_text",
]
