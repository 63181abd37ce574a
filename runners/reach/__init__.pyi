from .command import known_device
from .step import SMALL, batch_cost, cost_at, operations_at

__all__ = [
    "SMALL",
    "batch_cost",
    "cost_at",
    "known_device",
    "operations_at",
]
