from .budget import Curve
from .gpu_hours import (
    RULES_OF_THUMB,
    PredictedUtilization,
    TooFew,
    flop_of,
    gpu_hours_of,
    left_out,
    predicted_utilization,
)
from .published_runs import Observation, excluded_runs, family_of, observations, ours

__all__ = [
    "Curve",
    "Observation",
    "PredictedUtilization",
    "RULES_OF_THUMB",
    "TooFew",
    "excluded_runs",
    "family_of",
    "flop_of",
    "gpu_hours_of",
    "left_out",
    "observations",
    "ours",
    "predicted_utilization",
]
