from .least_time import IN_PARTS, BatchCost, StepBound, StepCost, step_bound, step_cost

__all__ = [
    "IN_PARTS",
    "BatchCost",
    "StepBound",
    "StepCost",
    "step_bound",
    "step_cost",
]
