from .text import CeilingAnswer, document, to_text

__all__ = [
    "CeilingAnswer",
    "document",
    "to_text",
]
