from .text import ReachAnswer, document, to_csv, to_text

__all__ = [
    "ReachAnswer",
    "document",
    "to_csv",
    "to_text",
]
