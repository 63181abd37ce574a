from .step import batch_cost, cost_at, cost_of

__all__ = [
    "batch_cost",
    "cost_at",
    "cost_of",
]
