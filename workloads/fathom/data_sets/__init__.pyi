from .load import batches

__all__ = [
    "batches",
]
