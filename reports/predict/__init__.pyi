from .markdown import page
from .text import PredictAnswer, document, to_csv, to_text

__all__ = [
    "PredictAnswer",
    "document",
    "page",
    "to_csv",
    "to_text",
]
