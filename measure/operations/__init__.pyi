from .cuda_dispatch import cuda_rules
from .packed_sequences import note_ends
from .tracer import FakeMode, Recorder, StepParts, Trace, to_fake, trace, trace_step

__all__ = [
    "FakeMode",
    "Recorder",
    "StepParts",
    "Trace",
    "cuda_rules",
    "note_ends",
    "to_fake",
    "trace",
    "trace_step",
]
