"""Reads how long this process was kept from the processors while a block was timed, by Linux's counters.

`disturbance` returns totals in seconds, before and after a block, outside of its time; `since` returns their increase.
A missing value is None, and `absent` says why. Run-queue wait is time in which a thread was ready and no processor took
it (`/proc/self/task/*/schedstat`, summed over threads). Steal is time that a hypervisor gave to another machine
(`/proc/stat`). `Neighbours` measures other processes' use of the processors, and `SuspensionWatch` counts suspensions.
`page_fault_warning` reports page faults for memory that was given back, and `round_trip` times a cache line between two
processors. Not claimed: neighbours that take no processor time (caches, memory, the other hardware thread, heat); waits
for a thread that the system does not run; a control group's quota; a frozen container; a paused virtual machine.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

from measure.device.cores import round_trip_s
from results.errors import Unavailable
from results.records.cell import RETAIN

DISTURBED = "disturbed"
"""`part` of a measured block that waited for a processor and was measured again; also the beginning of the warning."""

MOVED = "moved"
"""`part` of a measured block that was timed while the processors were placed differently than in the others."""

ROOT = Path("/")
"""Where /proc and /sys are read; tests point it elsewhere."""

STEAL = 8
"""Position of the stolen time in the first line of /proc/stat (proc(5)), after the word "cpu"."""


def disturbance() -> dict[str, Any]:
    """Return column of samples.csv → its total now, in s; None where the system does not count it."""
    return {name: _or_none(read) for name, read in _TOTALS.items()}


def since(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the increase of each total; None where it is unknown, also if a thread ended meanwhile with its wait."""
    pairs = [(name, before[name], now[name]) for name in now]
    return {name: None if None in (was, has) or has < was else has - was for name, was, has in pairs}


def round_trip() -> float | None:
    """Return the seconds of a cache line's round trip between two processors; None if it cannot be timed. Measuring
    takes 0.5 ms of both."""
    return _or_none(round_trip_s)


def absent(on_cpu: bool) -> dict[str, str]:
    """Return column of samples.csv → why this system leaves it empty. on_cpu: whether to include the round trip."""
    reasons = {}
    for name, read in {**_TOTALS, **({"core_round_trip_s": round_trip_s} if on_cpu else {})}.items():
        try:
            read()
        except Unavailable as fault:
            reasons[name] = str(fault)
    return reasons


def run_wait_s() -> float | None:
    """Return the seconds in which threads of this process were ready to run, but without a processor, summed over all
    present threads; None where the system does not count it."""
    return _or_none(_run_wait_s)


def _or_none(read: Callable[[], float]) -> float | None:
    try:
        return read()
    except Unavailable:
        return None


def _run_wait_s() -> float:
    tasks = ROOT / "proc/self/task"
    try:  # the second number of each file is the wait in ns
        waits = [int((task / "schedstat").read_text().split()[1]) for task in tasks.iterdir()]
    except (OSError, IndexError, ValueError) as fault:  # no such system, or a thread that ended meanwhile
        raise Unavailable(f"/proc/self/task/*/schedstat: {_fault_text(fault)}") from fault
    if not waits:
        raise Unavailable("/proc/self/task: no thread")
    return sum(waits) / 1e9


def _steal_s() -> float:
    try:
        with (ROOT / "proc/stat").open() as file:
            return int(file.readline().split()[STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError) as fault:
        raise Unavailable(f"/proc/stat: {_fault_text(fault)}") from fault


def _fault_text(fault: Exception) -> str:
    return getattr(fault, "strerror", None) or "not as proc(5) has it"


_TOTALS: Mapping[str, Callable[[], float]] = {
    "run_wait_s": _run_wait_s,
    "steal_s": _steal_s,
}
"""Column of samples.csv → its reader, which raises Unavailable with the reason."""


BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq, steal of the first line of /proc/stat (proc(5)); idle and iowait are not work."""

BUSY_RATIO = 0.05
"""Share of all processors used by others from which a timing gets a warning."""


class ProcessorUse(NamedTuple):
    """Processor time used in a window. others_s: of other processes, None where unknown; it is counted in hundredths of
    a second and may be below 0 by one or two of these. processor_s: of all processors, at work or idle."""

    others_s: float | None
    processor_s: float


def others_ratio(windows: Sequence[ProcessorUse]) -> float | None:
    """Return the share of all processors that others used in these windows together, 0 to 1; None where unknown, and
    without a window."""
    others_s = [window.others_s for window in windows if window.others_s is not None]
    processor_s = sum(window.processor_s for window in windows)
    if len(others_s) < len(windows) or not processor_s > 0:
        return None
    return min(1.0, max(0.0, sum(others_s) / processor_s))


class Neighbours:
    """Measures the use of the processors from its creation. stat: the file to read, /proc/stat. own_s: returns the
    processor time of this process, all threads; wall_s: any monotonic clock."""

    def __init__(
        self,
        stat: Path = ROOT / "proc/stat",
        own_s: Callable[[], float] = time.process_time,
        wall_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stat, self._own_s, self._wall_s = stat, own_s, wall_s
        self._begun = self._now()

    def used(self) -> ProcessorUse:
        """Return the processor time that was used since the creation."""
        (busy, processors, own, wall), (busy_before, _, own_before, wall_before) = self._now(), self._begun
        if busy is None or busy_before is None:
            return ProcessorUse(None, 0.0)
        return ProcessorUse((busy - busy_before) - (own - own_before), (wall - wall_before) * processors)

    def _now(self) -> tuple[float | None, int, float, float]:
        return (*_busy_s(self._stat), self._own_s(), self._wall_s())


def neighbours_warning(used_ratio: float | None) -> str:
    """Return a warning on a timing with such neighbours; empty if their use is small."""
    if used_ratio is None or used_ratio < BUSY_RATIO:
        return ""
    return f"busy: others used {used_ratio:.0%} of the processors while this was timed"


def _busy_s(stat: Path) -> tuple[float | None, int]:
    """Return (seconds of work since the system started, on all processors; how many there are)."""
    try:
        lines = stat.read_text().splitlines()
        ticks = [int(field) for field in lines[0].split()[1:]]
    except (OSError, ValueError, IndexError):
        return None, 0
    busy = sum(ticks[i] for i in BUSY_FIELDS if i < len(ticks))
    return busy / os.sysconf("SC_CLK_TCK"), sum(line.startswith("cpu") for line in lines) - 1


SUSPENDED = "suspended"
"""`part` of a timed block in which the process was suspended; also the beginning of the warning."""

WARNING = f"{SUSPENDED}: the process was stopped, or the machine slept, while blocks were timed: they are not used"

ASLEEP_S = 0.01
"""Least difference that counts as sleep: two readings of the clocks are only microseconds apart."""


class SuspensionWatch:
    """Counts suspensions of this process while it is entered.

    A process that was stopped (Ctrl-Z, `kill -STOP`) gets the signal SIGCONT when it continues; while a machine sleeps,
    only CLOCK_BOOTTIME continues.
    """

    def __init__(self) -> None:
        self._continued = 0
        self._before: object = None
        self._is_listening = False
        self._asleep_s = asleep_s()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGCONT, self._on_continue)
            self._is_listening = True
        return self

    def __exit__(self, *_fault: object) -> None:
        if self._is_listening:
            signal.signal(signal.SIGCONT, self._before or signal.SIG_DFL)  # type: ignore[arg-type]
            self._is_listening = False

    def was_suspended(self) -> bool:
        """Return whether there was a suspension since the last call, or since the watch was made."""
        asleep, before = asleep_s(), self._asleep_s
        stopped, self._continued, self._asleep_s = self._continued > 0, 0, asleep
        return stopped or asleep - before > ASLEEP_S

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        self._continued += 1
        if callable(self._before):
            self._before(number, frame)


def asleep_s() -> float:
    """Return how long this machine has slept since it was started; 0 where the system has no such clock."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


NOTABLE_RATIO = 0.1
"""Minimum share of processor time in the system from which page faults are reported."""

LEAST_FAULTS = 10_000
"""Minimum number of page faults a step (40 MB in pages of 4 KiB) from which they are taken to be the cause."""


def page_fault_warning(
    before: resource.struct_rusage, after: resource.struct_rusage, steps: int, malloc: str = "default"
) -> str:
    """Return a warning on steps that spent a notable share of their processor time on page faults; empty if they did
    not.

    before, after: getrusage(2) of this process, all threads. malloc: as in the cell.
    """
    a_step = (after.ru_minflt - before.ru_minflt) / max(1, steps)
    system_s, user_s = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    if not system_s or system_s < NOTABLE_RATIO * (system_s + user_s) or a_step < LEAST_FAULTS:
        return ""
    share = system_s / (system_s + user_s)
    counted = f"page_faults: {a_step:.0f} a step, and {share:.0%} of the processor time was the system's"
    if malloc == RETAIN:
        return counted
    return f"{counted}: freed memory goes back to the system and is allocated again"
