from .data import Published

__all__ = [
    "Published",
]
