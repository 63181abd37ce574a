from .cuda_dispatch import cuda_rules
from .tracer import FakeMode, Recorder, StepParts, Trace, to_fake, trace, trace_step

__all__ = [
    "FakeMode",
    "Recorder",
    "StepParts",
    "Trace",
    "cuda_rules",
    "to_fake",
    "trace",
    "trace_step",
]
