from .text import ModelCounts

__all__ = [
    "ModelCounts",
]
