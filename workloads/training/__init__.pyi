from .building import fault_text
from .input_errors import mismatch
from .inputs import draw, positional, resized, split, takes
from .losses import mean_loss
from .meta import without_values
from .step import OPTIMIZERS, GradientStep, InferenceStep, ScheduledStep, TrainingStep, have_state, optimizer_of

__all__ = [
    "GradientStep",
    "InferenceStep",
    "OPTIMIZERS",
    "ScheduledStep",
    "TrainingStep",
    "draw",
    "fault_text",
    "have_state",
    "mean_loss",
    "mismatch",
    "optimizer_of",
    "positional",
    "resized",
    "without_values",
    "split",
    "takes",
]
