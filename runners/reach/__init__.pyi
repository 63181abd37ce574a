from .command import NO_BOUND, add_device_and_step, answer_on_device, show_answer
from .step import SMALL, cost_at, operations_at, operations_at_each

__all__ = [
    "NO_BOUND",
    "SMALL",
    "add_device_and_step",
    "answer_on_device",
    "cost_at",
    "operations_at",
    "operations_at_each",
    "show_answer",
]
