"""Which processor this is, and what of it this process may use: cores, hardware threads, NUMA nodes, quota.

Read from /proc/cpuinfo and /sys alone. A core counts once however many hardware threads it has, as they share its
units. Not claimed: that a virtual processor is a core of its own; what a hypervisor says is repeated here.
"""

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
    blocks = [block for block in _read("proc/cpuinfo").split("\n\n") if block.strip()]
    found = {_processor(block) for block in blocks} - {None}
    if not found:
        raise Unavailable("no derived peak: /proc/cpuinfo does not say which processor this is")
    kinds = {(each.vendor, each.family, each.model) for each in found if each is not None}
    if len(kinds) > 1 or (_root() / "sys/devices/cpu_atom").exists():
        raise Unavailable("no derived peak: this processor has cores of several kinds, with units of their own")
    return next(each for each in found if each is not None)


def allowance() -> Allowance:
    """What this process may use of it."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores: dict[object, int] = {}
    for number in allowed:
        package, core = _topology(number, "physical_package_id"), _topology(number, "core_id")
        cores.setdefault((package, core) if core else number, number)
    nodes = [
        _listed(file.read_text(encoding="utf-8"))
        for file in (_root() / "sys/devices/system/node").glob("node*/cpulist")
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
            vendor, family, model, stepping, name, flags = (fields.get(each, "") for each in names)
            return Processor(vendor, family, model, stepping, name, frozenset(flags.split()))
    return None


def _topology(number: int, name: str) -> str:
    return _text(_root() / CPUS / f"cpu{number}/topology" / name)


def _listed(text: str) -> set[int]:
    """ "0-2,5" → {0, 1, 2, 5}."""
    return {number for part in text.strip().split(",") if part for number in _range(part)}


def _range(part: str) -> Iterable[int]:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _root() -> Path:
    return environment.ROOT


def _read(path: str) -> str:
    return _text(_root() / path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
