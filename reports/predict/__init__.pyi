from .text import PredictAnswer, document, to_csv, to_text

__all__ = [
    "PredictAnswer",
    "document",
    "to_csv",
    "to_text",
]
