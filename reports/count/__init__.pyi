from .parallel import answer_text
from .pasted import parse
from .step_peak import StepPeak, peak_of_step
from .text import ModelCounts

__all__ = [
    "ModelCounts",
    "StepPeak",
    "answer_text",
    "parse",
    "peak_of_step",
]
