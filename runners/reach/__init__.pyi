from .step import SMALL, operations_at

__all__ = ["SMALL", "operations_at"]
