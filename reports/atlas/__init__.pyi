from .figure import utilization_and_bound, utilization_by_intensity
from .markdown import page
from .placement import placed_document, placed_section, placed_text
from .text import document, to_csv, to_text

__all__ = [
    "document",
    "page",
    "placed_document",
    "placed_section",
    "placed_text",
    "to_csv",
    "to_text",
    "utilization_and_bound",
    "utilization_by_intensity",
]
