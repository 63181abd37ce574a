from .data import Trace
from .text import document, impossible, kernels_csv, to_text

__all__ = [
    "Trace",
    "document",
    "impossible",
    "kernels_csv",
    "to_text",
]
