"""What kept this process from the processors while a block was timed, as Linux counts it.

Run-queue wait is time that a thread of this process was ready and no processor took it (`/proc/self/task/*/schedstat`,
summed over threads). Involuntary switches are how often one was set aside. Steal is time that a hypervisor gave to
somebody else (`/proc/stat`, of the whole machine, in hundredths of a second). Throttling is time that the process's
control group had used up its quota. Each is read before and after a block, outside of its time.

Not claimed: neighbours that take no processor time from it (caches, memory, the other hardware thread, heat) leave no
trace here, and a thread that waits for another one that was set aside does not count as waiting.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

DISTURBED = "disturbed"
"""The part of a measured block that waited for a processor and was measured again, and how a warning of it begins."""

TASKS = Path("/proc/self/task")
STAT = Path("/proc/stat")
CPU_STATS = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))
"""Of the control group, version 2, then 1."""

STEAL = 8
"""Its place in the first line of /proc/stat (proc(5)), after the word "cpu"."""


@dataclass(frozen=True)
class Disturbance:
    """Totals since some beginning, or between two readings. None: the system does not count it."""

    run_wait_s: float | None
    involuntary_switches: int
    steal_s: float | None
    throttled_s: float | None

    def since(self, before: Disturbance) -> Disturbance:
        """What came to it. A thread that ended took its wait along: then it is unknown."""
        return Disturbance(
            _difference(self.run_wait_s, before.run_wait_s),
            self.involuntary_switches - before.involuntary_switches,
            _difference(self.steal_s, before.steal_s),
            _difference(self.throttled_s, before.throttled_s),
        )


def disturbance() -> Disturbance:
    """As of now."""
    return Disturbance(run_wait_s(), resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, _steal_s(), _throttled_s())


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None or after < before else after - before


def run_wait_s() -> float | None:
    """Seconds that the threads of this process were ready and no processor took them, of all threads that there are.

    None where the system does not count it.
    """
    try:  # nanoseconds are the second number of each
        waits = [int((task / "schedstat").read_text().split()[1]) for task in TASKS.iterdir()]
    except (OSError, IndexError, ValueError):  # no such system, or a thread that ended meanwhile
        return None
    return sum(waits) / 1e9 if waits else None


def _steal_s() -> float | None:
    try:
        with STAT.open() as file:
            return int(file.readline().split()[STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def _throttled_s() -> float | None:
    for path in CPU_STATS:
        try:
            fields = dict(line.split() for line in path.read_text().splitlines())
        except (OSError, ValueError):
            continue
        for name, per_s in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
            if name in fields:
                return int(fields[name]) / per_s
    return None
