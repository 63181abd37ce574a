from .evidence import (
    Evidence,
    TraceFacts,
    all_facts,
    counts_of,
    facts_or_fault,
    samples_and_telemetry,
)
from .gates import judge

__all__ = [
    "Evidence",
    "TraceFacts",
    "all_facts",
    "counts_of",
    "facts_or_fault",
    "judge",
    "samples_and_telemetry",
]
