"""What memory that goes back to the system costs a step on a CPU: page faults, and the system's processor time.

A step allocates its activations and gradients and frees them. The allocator of the C library returns large blocks to
the system at once (mallopt(3): M_MMAP_THRESHOLD, M_TRIM_THRESHOLD), and each page of the next block is a fault again,
in which the system clears it. That is time in which no FLOP is done. Both are counted for all threads of this process,
as getrusage(2) has them.

Not claimed: that all of the system's time is that of faults, though little else is where a step does no input or
output; on a virtual machine a fault may also wait for the host, which is in no count.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from results.records.vocabulary import RETAIN

NOTABLE_RATIO = 0.1
"""The system's share of processor time from which its cause is named."""

LEAST_FAULTS = 10_000
"""Page faults a step, 40 MB in pages of 4 KiB, from which these are the cause."""


@dataclass(frozen=True)
class ProcessUse:
    """Of this process, all threads, since it began or between two readings. faults: without reading from a disk."""

    faults: int
    user_s: float
    system_s: float

    def since(self, before: ProcessUse) -> ProcessUse:
        """What came to it."""
        return ProcessUse(self.faults - before.faults, self.user_s - before.user_s, self.system_s - before.system_s)

    @property
    def system_ratio(self) -> float:
        """The system's share of processor time, 0 to 1."""
        used_s = self.user_s + self.system_s
        return self.system_s / used_s if used_s > 0 else 0.0


def process_use() -> ProcessUse:
    """As of now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUse(usage.ru_minflt, usage.ru_utime, usage.ru_stime)


def page_fault_warning(use: ProcessUse, steps: int, malloc: str = "default") -> str:
    """What to say of steps that took a notable share of their processor time for page faults; empty if they did not.

    malloc: as the cell has it.
    """
    a_step = use.faults / max(1, steps)
    if use.system_ratio < NOTABLE_RATIO or a_step < LEAST_FAULTS:
        return ""
    counted = f"page_faults: {a_step:.0f} a step, and {use.system_ratio:.0%} of the processor time was the system's"
    if malloc == RETAIN:
        return counted
    return f"{counted}: memory that is freed goes back to it and is taken anew"
