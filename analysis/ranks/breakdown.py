"""A rank's time in a window: computing, communicating beside it (overlapped) and alone (exposed), copying, idle.

    window = compute + exposed + memory alone + idle;  communication = exposed + overlapped

Not claimed: that overlapped communication is free; it takes bandwidth and multiprocessors from the kernels beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.ranks.timelines import Timeline, clipped, length, spans


@dataclass(frozen=True)
class Breakdown:
    """Seconds. memory_s: copies and fills where nothing else ran."""

    window_s: float
    compute_s: float
    communication_s: float
    exposed_s: float
    overlapped_s: float
    memory_s: float
    idle_s: float


def breakdown_of(timeline: Timeline, start_ns: int, end_ns: int) -> Breakdown:
    """Of one rank, within a window of its own clock."""
    parts = (timeline.compute, spans(timeline.collectives), timeline.memory)
    compute, communication, memory = (clipped(part, start_ns, end_ns) for part in parts)
    computed, communicated = length(compute), length(communication)
    either = length(compute, communication)
    busy = length(compute, communication, memory)
    return Breakdown(
        window_s=(end_ns - start_ns) / 1e9,
        compute_s=computed / 1e9,
        communication_s=communicated / 1e9,
        exposed_s=(either - computed) / 1e9,
        overlapped_s=(computed + communicated - either) / 1e9,
        memory_s=(busy - either) / 1e9,
        idle_s=(end_ns - start_ns - busy) / 1e9,
    )
