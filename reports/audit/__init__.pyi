from .markdown import page
from .text import document, to_csv, to_text

__all__ = [
    "document",
    "page",
    "to_csv",
    "to_text",
]
