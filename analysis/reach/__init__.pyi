from .least_time import BatchCost, StepBound, StepCost, step_bound, step_cost

__all__ = [
    "BatchCost",
    "StepBound",
    "StepCost",
    "step_bound",
    "step_cost",
]
