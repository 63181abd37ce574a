from .step import TracedStep, prediction_of, traced_step

__all__ = [
    "TracedStep",
    "prediction_of",
    "traced_step",
]
