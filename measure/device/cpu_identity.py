"""Which processor this is, and what of it this process may use: cores, hardware threads, NUMA nodes, quota.

Read from /proc/cpuinfo and /sys alone. A core counts once however many hardware threads it has, as they share its
units. Not claimed: that a virtual processor is a core of its own; what a hypervisor says is repeated here.

How much of the processors others used while something was timed here: Linux's own account minus this process's.

On a CPU a busy neighbour is the commonest reason for a number that will not repeat: threads of one operation wait for
the one that was set aside. On a GPU it can starve the host. Not claimed: whose work it was, or that it did harm; in a
container /proc/stat tells of the whole machine, and so does this.
"""

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from analysis.devices.processors import Processor
from measure.device import environment
from results.errors import Unavailable

CPUS = "sys/devices/system/cpu"
X86_FIELDS = ("vendor_id", "cpu family", "model", "stepping", "model name", "flags")
ARM_FIELDS = ("CPU implementer", "CPU architecture", "CPU part", "CPU revision", "model name", "Features")


@dataclass(frozen=True)
class Allowance:
    """What this process may use. processors: logical, by its affinity. cores: the first of them of each core.

    quota: processors' worth of time that its control group may use; None without a limit. numa_nodes: that the
    processors lie on. hardware_threads: of one core, 1 where nothing says more.
    """

    processors: tuple[int, ...]
    cores: tuple[int, ...]
    hardware_threads: int
    numa_nodes: int
    quota: float | None

    def usable_cores(self, threads: int) -> float:
        """Cores that so many threads of the process can keep busy; a quota may make it a fraction."""
        return min(float(len(self.cores)), float(threads), math.inf if self.quota is None else self.quota)

    def pinned(self, threads: int) -> tuple[int, ...]:
        """One logical processor on each core that so many threads can keep busy, at least one."""
        return self.cores[: max(1, int(self.usable_cores(threads)))]


def processor() -> Processor:
    """The processor of this machine. Raises Unavailable where nothing says it, or it has cores of several kinds."""
    blocks = [block for block in environment.read("proc/cpuinfo").split("\n\n") if block.strip()]
    processors = {_processor(block) for block in blocks} - {None}
    if not processors:
        raise Unavailable("no derived peak: /proc/cpuinfo does not say which processor this is")
    kinds = {(each.vendor, each.family, each.model) for each in processors if each is not None}
    if len(kinds) > 1 or (environment.ROOT / "sys/devices/cpu_atom").exists():
        raise Unavailable("no derived peak: this processor has cores of several kinds, with units of their own")
    return next(each for each in processors if each is not None)


def allowance() -> Allowance:
    """What this process may use of it."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores: dict[object, int] = {}
    for number in allowed:
        package, core = _topology(number, "physical_package_id"), _topology(number, "core_id")
        cores.setdefault((package, core) if core else number, number)
    nodes = [
        _listed(file.read_text(encoding="utf-8"))
        for file in (environment.ROOT / "sys/devices/system/node").glob("node*/cpulist")
    ]
    return Allowance(
        processors=tuple(allowed),
        cores=tuple(cores.values()),
        hardware_threads=max(len(_listed(_topology(number, "thread_siblings_list"))) or 1 for number in allowed),
        numa_nodes=sum(bool(node & set(allowed)) for node in nodes) or 1,
        quota=environment.cpu_quota(),
    )


def _processor(block: str) -> Processor | None:
    fields = dict(re.findall(r"^([^\t:]+)\s*:[ ]?(.*)$", block, re.MULTILINE))
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    for names in (X86_FIELDS, ARM_FIELDS):
        if names[0] in fields and names[-1] in fields:
            vendor, family, model, stepping, name, flags = (fields.get(field, "") for field in names)
            return Processor(vendor, family, model, stepping, name, frozenset(flags.split()))
    return None


def _topology(number: int, name: str) -> str:
    return environment.read(f"{CPUS}/cpu{number}/topology/{name}").strip()


def _listed(text: str) -> set[int]:
    """ "0-2,5" → {0, 1, 2, 5}."""
    spans = (part.partition("-") for part in text.strip().split(",") if part)
    return {number for first, _, last in spans for number in range(int(first), int(last or first) + 1)}


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
