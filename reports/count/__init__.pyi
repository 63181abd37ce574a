from .parallel import answer_text
from .pasted import parse
from .text import ModelCounts

__all__ = [
    "ModelCounts",
    "answer_text",
    "parse",
]
