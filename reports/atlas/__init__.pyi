from .figure import utilization_and_bound
from .page import page
from .text import COLUMNS, document, to_csv, to_text

__all__ = [
    "COLUMNS",
    "document",
    "page",
    "to_csv",
    "to_text",
    "utilization_and_bound",
]
