from .pasted import parse
from .text import ModelCounts

__all__ = [
    "ModelCounts",
    "parse",
]
