from .any_model import get

__all__ = [
    "get",
]
