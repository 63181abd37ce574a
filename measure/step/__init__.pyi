from .count import StepCount

__all__ = [
    "StepCount",
]
