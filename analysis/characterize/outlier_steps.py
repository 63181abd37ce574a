"""Steps that took much longer than the others of their recording, and whether a processor worked on them meanwhile.

A step on a CPU can be slow by its own numbers: with subnormal ones (smaller than 1.2e-38 in float32) arithmetic takes
many times as long, and one step of a network without normalisation can have millions where the next has none. Or others
had the processor. The process's own processor time tells the two apart.

Not claimed: that numbers are the reason where the processor was busy; a step that does more would look the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from results.records.characterization import WARM_UP, Characterization, RecordedStep, WorkloadRecording

TIMES = 2.0
"""As long as the median of the others: longer is slow."""

FEWEST = 3
"""Steps of a part, warming up left out, of which one can be said to be slow."""

BUSY = 0.8
"""Share of the time lost, from which on it was the process's own processor time."""


@dataclass(frozen=True)
class Slow:
    """The slowest step of a part. others_s: the others' median; busy: whether a processor worked on it, if known."""

    recording: WorkloadRecording
    step: RecordedStep
    others_s: float
    busy: bool | None


def slow_steps(data: Characterization) -> Iterator[Slow]:
    """One at most of each recording and part, where it took more than TIMES as long as the others."""
    for recording in data.recordings:
        mine = [each for each in data.steps if each.recording == recording.recording and each.part != WARM_UP]
        for part in dict.fromkeys(each.part for each in mine):
            steps = [each for each in mine if each.part == part]
            if len(steps) < FEWEST:
                continue
            slowest = max(steps, key=lambda each: each.time_s)
            others = [each for each in steps if each is not slowest]
            usual_s = median(each.time_s for each in others)
            if slowest.time_s > TIMES * usual_s:
                yield Slow(recording, slowest, usual_s, _busy(slowest, others, usual_s))


def _busy(slow: RecordedStep, others: list[RecordedStep], usual_s: float) -> bool | None:
    used = [each.cpu_s for each in others if each.cpu_s is not None]
    if slow.cpu_s is None or len(used) < len(others):
        return None
    return slow.cpu_s - median(used) >= BUSY * (slow.time_s - usual_s)
