"""How much of the processors others used while something was timed here: Linux's own account minus this process's.

On a CPU a busy neighbour is the commonest reason for a number that will not repeat: threads of one operation wait for
the one that was set aside. On a GPU it can starve the host. Not claimed: whose work it was, or that it did harm; in a
container /proc/stat tells of the whole machine, and so does this.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

STAT = Path("/proc/stat")
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq, steal of the first line of /proc/stat (proc(5)); idle and iowait are not work."""
BUSY_RATIO = 0.05
"""Share of all processors used by others from which a timing is marked."""


class Used(NamedTuple):
    """others_s: processor time of others, None where the system does not say; it is counted in hundredths of a second
    and may be below 0 by one or two of these. processor_s: of all processors, at work or idle."""

    others_s: float | None
    processor_s: float


def ratio_of(windows: Sequence[Used]) -> float | None:
    """Share of all processors that others used in these windows together, 0 to 1; None where the system does not say,
    and where there is no window."""
    others_s = [window.others_s for window in windows if window.others_s is not None]
    processor_s = sum(window.processor_s for window in windows)
    if len(others_s) < len(windows) or not processor_s > 0:
        return None
    return min(1.0, max(0.0, sum(others_s) / processor_s))


class Neighbours:
    """Begins to watch when made. own_s: processor time of this process, all threads; wall_s: any monotonic clock."""

    def __init__(
        self,
        stat: Path = STAT,
        own_s: Callable[[], float] = time.process_time,
        wall_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stat, self._own_s, self._wall_s = stat, own_s, wall_s
        self._begun = self._now()

    def used_ratio(self) -> float | None:
        """Share of all processors that others used since then, 0 to 1; None where the system does not say."""
        return ratio_of([self.used()])

    def used(self) -> Used:
        """Since then."""
        busy, own, wall, processors = self._now()
        busy_before, own_before, wall_before, _ = self._begun
        if busy is None or busy_before is None:
            return Used(None, 0.0)
        return Used((busy - busy_before) - (own - own_before), (wall - wall_before) * processors)

    def _now(self) -> tuple[float | None, float, float, int]:
        busy, processors = _busy_s(self._stat)
        return busy, self._own_s(), self._wall_s(), processors


def warning(used_ratio: float | None) -> str:
    """What to say of a timing beside such neighbours; empty if nothing."""
    if used_ratio is None or used_ratio < BUSY_RATIO:
        return ""
    return f"busy: others used {used_ratio:.0%} of the processors while this was timed"


def _busy_s(stat: Path) -> tuple[float | None, int]:
    """(seconds of work since the system started, on all processors; how many there are)."""
    try:
        lines = stat.read_text().splitlines()
        ticks = [int(field) for field in lines[0].split()[1:]]
        busy = sum(ticks[i] for i in BUSY_FIELDS if i < len(ticks))
    except (OSError, ValueError, IndexError):
        return None, 0
    processors = sum(line.startswith("cpu") for line in lines) - 1
    return busy / os.sysconf("SC_CLK_TCK"), processors
