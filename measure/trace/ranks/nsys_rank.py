"""A rank's SQLite export of Nsight Systems as a `Timeline`: kernels, copies, collectives of NCCL and steps.

The rank and how many there are come from the environment that the export has of its target (RANK, WORLD_SIZE, as
torchrun sets them for each rank that it starts under nsys), else the rank from the file's name (rank3.sqlite). Steps
are the NVTX ranges "ProfilerStep#N", or our own. Times count from when the session began, which the export has as Unix
time; how exactly is not known, so that each export has a clock of its own.

Not claimed: bytes and members of a collective, which NCCL's kernels do not say; collectives of several groups that one
rank has are told apart by kind alone.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.ranks import Timeline
from measure.trace.attribution import steps
from measure.trace.ranks.kineto_rank import KERNEL, RankEvents, kind_of, timeline_of
from measure.trace.readers import Tables, nsys

HOW_TO_RECORD = (
    "record each rank: torchrun … --no-python nsys profile --trace=cuda,nvtx --output=rank%q{RANK} python train.py"
)


def read_nsys_rank(path: Path) -> Timeline:
    """The timeline in an export. Raises ValueError, one line, for what is no whole export, has kernels of several
    processes, or says no rank."""
    recording = nsys.read(path)
    kernels = recording.kernels
    processes = set(kernels["process"].tolist())
    if len(processes) > 1:
        raise ValueError(
            f"{path}: expected kernels of one rank's process, got those of {len(processes)}; {HOW_TO_RECORD}"
        )
    found = RankEvents()
    spans, _ = steps(recording.ranges)
    columns = (spans[name].tolist() for name in ("step", "start_ns", "time_ns"))
    found.steps = [(number, start, start + lasted) for number, start, lasted in zip(*columns, strict=True)]
    launched = kernels["launch_start_ns"].tolist()
    found.launches = {place: start for place, start in enumerate(launched) if start >= 0}
    rows = zip(*(kernels[name].tolist() for name in ("name", "what", "start_ns", "time_ns")), strict=True)
    for place, (name, what, start, lasted) in enumerate(rows):
        _take(found, place, name, what, start, start + lasted)
    return replace(timeline_of(path, found, _header(path, recording.device_name)), own_clock=True)


def _take(found: RankEvents, place: int, name: str, what: str, start_ns: int, end_ns: int) -> None:
    """One of the device's doings, whose place in the table stands for its launch."""
    collective = KERNEL.match(name) if what == "kernel" else None
    if collective is not None:
        unknown = {"group": "", "group_size": -1, "ranks": "", "nbytes": -1, "step": -1, "correlation": place}
        found.device.append({"start_ns": start_ns, "end_ns": end_ns, "kind": kind_of(collective[1]), **unknown})
        return
    columns = found.kernels if what == "kernel" else found.memory
    columns["start"].append(start_ns)
    columns["end"].append(end_ns)
    if what == "kernel":
        columns["correlation"].append(place)


def _header(path: Path, device_name: str) -> dict[str, Any]:
    """What the export says of its session, as Kineto names it. Raises ValueError where nothing says the rank."""
    try:
        tables = Tables(path, HOW_TO_RECORD)
        try:
            begins = [row[0] for row in tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if row[0]]
            target = dict(tables.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")))
        finally:
            tables.close()
    except sqlite3.Error as fault:
        raise ValueError(f"{path}: the SQLite data are cut or damaged ({fault}); {HOW_TO_RECORD}") from fault
    environment = str(target.get("DeviceEnvironment") or "")
    rank = _variable(environment, "RANK")
    if rank is None:
        named = re.findall(r"rank[_-]?(\d+)", path.name.lower()) or re.findall(r"\d+", path.name)
        if not named:
            raise ValueError(
                f"{path}: expected the rank in the export's environment (RANK) or in the file's name, as in "
                f"rank0.sqlite, got none; {HOW_TO_RECORD}"
            )
        rank = int(named[-1])
    return {
        "distributedInfo": {"rank": rank, "world_size": _variable(environment, "WORLD_SIZE")},
        "baseTimeNanoseconds": begins[0] if begins else 0,
        "host_name": target.get("Hostname", ""),
        "deviceProperties": [{"name": device_name}] if device_name else [],
    }


def _variable(environment: str, name: str) -> int | None:
    """The number that a variable of the target has. environment: NAME=VALUE, parted by semicolons or zeros."""
    found = re.search(rf"(?:^|[;\0]){name}=(\d{{1,9}})(?:[;\0]|$)", environment)
    return None if found is None else int(found[1])
