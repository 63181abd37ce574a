from .step import batch_cost, cost_at

__all__ = [
    "batch_cost",
    "cost_at",
]
