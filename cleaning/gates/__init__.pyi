from .evidence import (
    Difference,
    Evidence,
    TraceFacts,
    all_facts,
    counts_of,
    facts_or_fault,
    profile_facts,
    samples_and_telemetry,
)
from .gates import judge

__all__ = [
    "Difference",
    "Evidence",
    "TraceFacts",
    "all_facts",
    "counts_of",
    "facts_or_fault",
    "judge",
    "profile_facts",
    "samples_and_telemetry",
]
