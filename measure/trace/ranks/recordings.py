"""The recordings of many ranks in one folder: Kineto's, a file each, or those of Nsight Systems, by the names' ends.

Of Nsight Systems the rank and how many there are come from the environment that the export has of its target (RANK,
WORLD_SIZE, as torchrun sets them for each rank that it starts under nsys), else the rank from the file's name
(rank3.sqlite). Steps are the NVTX ranges "ProfilerStep#N", or our own. An export of all ranks of a host (nsys before
torchrun) has a process of each, and says no rank. Times count from when the session began, which the export has as
Unix time; how exactly is not known, so that each export has a clock of its own.

Not claimed: bytes and members of a collective, which NCCL's kernels do not say; collectives of several groups that one
rank has are told apart by kind alone.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.ranks.timelines import Timeline
from measure.trace.attribution.phases import steps
from measure.trace.attribution.recording import Recording, of_process
from measure.trace.ranks.kineto_rank import KERNEL, RankEvents, kind_of, read_kineto_rank, timeline_of
from measure.trace.readers import nsys
from measure.trace.readers.nsys_tables import Tables

HOW_TO_RECORD = (
    "record each rank: torchrun … --no-python nsys profile --trace=cuda,nvtx --output=rank%q{RANK} python train.py"
)


def read_nsys_rank(path: Path) -> Timeline:
    """The timeline in an export of one rank. Raises ValueError as `read_nsys_ranks` does, and for several ranks."""
    found = read_nsys_ranks(path)
    if len(found) > 1:
        raise ValueError(f"{path}: expected one rank, got the processes of {len(found)}")
    return found[0]


def read_nsys_ranks(path: Path, first: int = 0) -> list[Timeline]:
    """The timelines in an export: of the one rank that it says, or, where it says none and several processes had
    kernels, of each of these, numbered from `first` on in the order of their devices, then of the processes.

    Raises ValueError, one line, for what is no whole export, says no rank, or says one and has several processes.
    """
    recording = nsys.read(path)
    ran = recording.kernels[recording.kernels["what"] == "kernel"]
    devices = (ran if len(ran) else recording.kernels).groupby("process")["device"].min()
    processes = sorted(devices.index.tolist(), key=lambda process: (int(devices[process]), process))
    session = _session(path)
    rank = _variable(session.environment, "RANK")
    if len(processes) == 1:
        own = recording if len(set(recording.kernels["process"].tolist())) == 1 else of_process(recording, processes[0])
        return [_timeline(own, session, _named(path) if rank is None else rank)]
    if rank is not None:
        raise ValueError(
            f"{path}: expected kernels of one rank's process, got those of {len(processes)}; {HOW_TO_RECORD}"
        )
    parts = [of_process(recording, process) for process in processes]
    found = [_timeline(part, session, first + place) for place, part in enumerate(parts)]
    return [replace(each, process=process) for each, process in zip(found, processes, strict=True)]


def _timeline(recording: Recording, session: _Session, rank: int) -> Timeline:
    """The timeline of one process."""
    kernels = recording.kernels
    found = RankEvents()
    spans, _ = steps(recording.ranges)
    columns = (spans[name].tolist() for name in ("step", "start_ns", "time_ns"))
    found.steps = [(number, start, start + lasted) for number, start, lasted in zip(*columns, strict=True)]
    launched = kernels["launch_start_ns"].tolist()
    found.launches = {place: start for place, start in enumerate(launched) if start >= 0}
    rows = zip(*(kernels[name].tolist() for name in ("name", "what", "start_ns", "time_ns")), strict=True)
    for place, (name, what, start, lasted) in enumerate(rows):
        _take(found, place, name, what, start, start + lasted)
    name = recording.device_name
    header = {
        "distributedInfo": {"rank": rank, "world_size": _variable(session.environment, "WORLD_SIZE")},
        "baseTimeNanoseconds": session.begin_ns,
        "host_name": session.host,
        "deviceProperties": [{"name": name}] if name else [],
    }
    return replace(timeline_of(Path(recording.path), found, header), own_clock=True)


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


@dataclass(frozen=True)
class _Session:
    """What an export says of its session. begin_ns: Unix time, 0: not said; environment: as `_variable` reads it."""

    begin_ns: int
    host: str
    environment: str


def _session(path: Path) -> _Session:
    """Raises ValueError for an export that is cut."""
    try:
        tables = Tables(path, HOW_TO_RECORD)
        try:
            begins = [row[0] for row in tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if row[0]]
            target = dict(tables.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")))
        finally:
            tables.close()
    except sqlite3.Error as fault:
        raise ValueError(f"{path}: the SQLite data are cut or damaged ({fault}); {HOW_TO_RECORD}") from fault
    host, environment = (str(target.get(name) or "") for name in ("Hostname", "DeviceEnvironment"))
    return _Session(begins[0] if begins else 0, host, environment)


def _named(path: Path) -> int:
    """The rank that a file's name says. Raises ValueError for one that says none."""
    named = re.findall(r"rank[_-]?(\d+)", path.name.lower()) or re.findall(r"\d+", path.name)
    if not named:
        raise ValueError(
            f"{path}: expected the rank in the export's environment (RANK) or in the file's name, as in "
            f"rank0.sqlite, got none; {HOW_TO_RECORD}"
        )
    return int(named[-1])


def _variable(environment: str, name: str) -> int | None:
    """The number that a variable of the target has. environment: NAME=VALUE, parted by semicolons or zeros."""
    found = re.search(rf"(?:^|[;\0]){name}=(\d{{1,9}})(?:[;\0]|$)", environment)
    return None if found is None else int(found[1])


READERS = {
    ".json": read_kineto_rank,
    ".json.gz": read_kineto_rank,
    ".sqlite": read_nsys_rank,
    ".sqlite.gz": read_nsys_rank,
}
"""End of a file's name → what reads it."""

TRACE_ENDINGS = tuple(READERS)
NSIGHT_ENDINGS = (".sqlite", ".sqlite.gz")

DOCUMENT = "ranks.json"
"""What `runners.trace DIR --out DIR` writes beside them, which is no recording."""


def rank_files(folder: Path) -> list[Path]:
    """The traces in a folder, by name, node2 before node10. Raises ValueError for none."""
    named = (path for path in folder.iterdir() if path.name.endswith(TRACE_ENDINGS) and path.name != DOCUMENT)
    files = sorted(
        (path for path in named if path.is_file()),
        key=lambda path: [(text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d*)", path.name)],
    )
    if not files:
        held = sorted(path.name for path in folder.iterdir())
        near = f"; it holds {', '.join(held[:3])}{', …' if len(held) > 3 else ''}" if held else ""
        ends = f"{', '.join(TRACE_ENDINGS[:-1])} or {TRACE_ENDINGS[-1]}"
        raise ValueError(f"expected recordings ({ends}, one a rank) in {folder}, got none{near}")
    return files


def read_ranks(paths: Iterable[Path]) -> list[Timeline]:
    """The timelines in these files, in their order. Exports of Nsight Systems that have several ranks and say none are
    numbered on from file to file. Raises ValueError as `read_rank` does."""
    found: list[Timeline] = []
    numbered = 0
    for path in paths:
        if not path.name.endswith(NSIGHT_ENDINGS):
            found.append(read_rank(path))
            continue
        ranks = read_nsys_ranks(path, numbered)
        numbered += len(ranks) if len(ranks) > 1 else 0
        found += ranks
    return found


def read_rank(path: Path) -> Timeline:
    """The timeline in a trace. Raises ValueError, one line, for what is no trace, names no rank or is malformed."""
    end = next((end for end in READERS if path.name.endswith(end)), ".json")
    return READERS[end](path)
