from .evidence import Difference, Evidence, all_facts, counts_of, profile_facts, samples_and_telemetry
from .gates import judge

__all__ = [
    "Difference",
    "Evidence",
    "all_facts",
    "counts_of",
    "judge",
    "profile_facts",
    "samples_and_telemetry",
]
