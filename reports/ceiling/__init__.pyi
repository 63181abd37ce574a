from .collectives import collectives_text
from .text import CeilingAnswer, document, to_text

__all__ = [
    "CeilingAnswer",
    "collectives_text",
    "document",
    "to_text",
]
