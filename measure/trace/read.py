"""Reads a recording from a file of any profiler, and the recordings of many ranks in one folder as timelines.

`read` takes a path and returns a `Recording`. The content decides the format, not the file's name, and each reader
checks that its file is whole. `read_ranks` takes paths and returns a `RankTimeline` per rank. Kineto writes the rank
into the file. An export of Nsight Systems has the rank in the target's environment (RANK, WORLD_SIZE, set by torchrun),
else in the file's name (rank3.sqlite). The export's clock starts with its session. Without a device, operator calls
that calculate count as computing, but not frames of autograd, in which a rank may wait. Not claimed: that a
collective's time is transfer, since its kernel spins until the last member arrives; for Nsight Systems, its bytes and
members.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.rank_timelines import COLLECTIVE_COLUMNS, STEP_COLUMNS, RankTimeline
from measure.trace import kineto, nsys, pyprof
from measure.trace.attribute import steps as marked_steps
from measure.trace.nesting import Ints, ints
from measure.trace.recording import Recording, of_process
from results.text_files import check_regular, counted

READERS = {"kineto": kineto.read, "nsys": nsys.read, "pyprof": pyprof.read}

FORMATS = "a Kineto trace (.json, .json.gz), an Nsight Systems export (.sqlite) or PyProf's output (CSV or dict)"

NSIGHT = (".nsys-rep", ".qdrep")
"""Endings of files that only Nsight Systems itself can read."""

MALFORMED = (TypeError, AttributeError, ArithmeticError, LookupError, RecursionError)
"""Exceptions of readers in a file whose parts have other types than its recorder gives them."""

_LOOK = 1 << 16


def read(path: str | Path) -> Recording:
    """Return the recording in a file; only PyProf's is attributed already. Raises ValueError, one line, for a file that
    is not a whole recording."""
    try:
        return READERS[detect(path)](path)
    except MALFORMED as fault:
        text = " ".join(f"{type(fault).__name__}: {fault}".split())
        message = f"{path}: expected what its recorder writes, got a part that is missing or of another type or range"
        raise ValueError(f"{message} ({text})") from fault


def detect(path: str | Path) -> str:
    """Return the format of a file, a key of READERS. Raises ValueError if it has none of these formats."""
    begin = _begin(path)
    if begin.startswith(nsys.MAGIC):
        return "nsys"
    text = begin.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        raise ValueError(f"{path}: the file is empty; expected {FORMATS}")
    if text[:1] in b"{[":
        return "pyprof" if text[1:].lstrip()[:1] == b"'" else "kineto"
    if b"," in text.splitlines()[0] and b"\x00" not in text:
        return "pyprof"
    if Path(path).suffix in NSIGHT:
        raise ValueError(f"{path}: the profiler's own file, not its export; {nsys.HOW_TO_RECORD}")
    raise ValueError(f"{path}: expected {FORMATS}, it begins with {text[:20]!r}")


def _begin(path: str | Path) -> bytes:
    try:
        check_regular(path)
        with open(path, "rb") as file:
            begin = file.read(_LOOK)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}; expected {FORMATS}") from error
    if begin[:2] != nsys.GZIP:
        return begin
    unzip = zlib.decompressobj(wbits=31)
    try:
        text = unzip.decompress(begin, _LOOK)
    except zlib.error:
        return b"{"  # the reader will report the damage
    return text if text or unzip.eof else b"{"


HOW_TO_RECORD = (
    "record each rank: torchrun … --no-python nsys profile --trace=cuda,nvtx --output=rank%q{RANK} python train.py"
)

NOT_COMPUTING = ("autograd::", "torch::autograd", "c10d::", "record_param_comms", "_c10d_functional::", "profiler::")
"""Beginnings of calls on the host within which a rank may wait, or that only start a collective."""

TRACE_ENDINGS = (".json", ".json.gz", ".sqlite", ".sqlite.gz")

DOCUMENT = "ranks.json"
"""File that `runners.trace DIR --out DIR` writes beside the recordings."""


def rank_files(folder: Path) -> list[Path]:
    """Return the traces in a folder, by name, node2 before node10. Raises ValueError if there is none."""
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


def read_ranks(paths: Iterable[Path]) -> list[RankTimeline]:
    """Return the timelines in these files, in their order.

    An export of Nsight Systems may hold several processes, one per rank of a host, without their ranks: these ranks are
    numbered on from file to file. Collectives of Nsight Systems have no group, and are distinguished only by kind. A
    device's step has everything that was launched within the host's "ProfilerStep#N", and lasts from its first kernel
    to the next step's. Raises ValueError, one line, for a file that is not a whole recording or has no rank.
    """
    timelines: list[RankTimeline] = []
    for path in paths:
        timelines += _ranks_in(path, sum(timeline.process >= 0 for timeline in timelines))
    return timelines


def read_rank(path: Path) -> RankTimeline:
    """Return the timeline in a recording of one rank. Raises ValueError as `read_ranks` does, and for several ranks."""
    timelines = _ranks_in(path, 0)
    if len(timelines) > 1:
        raise ValueError(f"{path}: expected one rank, got the processes of {len(timelines)}")
    return timelines[0]


def _ranks_in(path: Path, first: int) -> list[RankTimeline]:
    """Return the timelines in a file: that of its rank; or, if it has no rank and several processes had kernels, one of
    each process, numbered from `first` in the order of their devices and processes."""
    recording = read(path)
    rank, kernels = recording.rank, recording.kernels
    if recording.source != "nsys":
        if rank is None:
            raise ValueError(
                f"{path}: expected the rank in distributedInfo, as torch.profiler writes it where torch.distributed "
                "was initialized before the recording began, got none"
            )
        return [_timeline(recording, rank)]
    ran = kernels[kernels["what"] == "kernel"]
    devices = (ran if len(ran) else kernels).groupby("process")["device"].min()
    processes = sorted(devices.index.tolist(), key=lambda process: (int(devices[process]), process))
    parts = [of_process(recording, process) for process in processes]
    if len(processes) == 1:
        return [replace(_timeline(parts[0], _named(path) if rank is None else rank), own_clock=True)]
    if rank is not None:
        raise ValueError(
            f"{path}: expected kernels of one rank's process, got those of {len(processes)}; {HOW_TO_RECORD}"
        )
    return [
        replace(_timeline(part, first + index), own_clock=True, process=process)
        for index, (part, process) in enumerate(zip(parts, processes, strict=True))
    ]


def _named(path: Path) -> int:
    """Return the rank in a file's name. Raises ValueError if there is none."""
    named = re.findall(r"rank[_-]?(\d+)", path.name.lower()) or re.findall(r"\d+", path.name)
    if not named:
        raise ValueError(
            f"{path}: expected the rank in the export's environment (RANK) or in the file's name, as in "
            f"rank0.sqlite, got none; {HOW_TO_RECORD}"
        )
    return int(named[-1])


def _timeline(recording: Recording, rank: int) -> RankTimeline:
    """Return the timeline of one rank, on the Unix clock."""
    kernels, calls, path = recording.kernels, recording.calls, recording.path
    on_device = (kernels["what"] == "kernel").to_numpy(bool)
    device = bool(on_device.any())
    shared = kernels[on_device] if device else recording.ranges
    collectives = shared[shared["collective"].notna()]
    computes = calls["name"].map(lambda name: "::" in name and not name.startswith(NOT_COMPUTING)).astype(bool)
    computing = kernels[on_device & kernels["collective"].isna()] if device else calls[computes]
    marks, _ = marked_steps(recording.ranges)
    host = [(number, begin, end) for number, (begin, end) in zip(marks["step"].tolist(), _spans(marks), strict=True)]
    steps = _device_steps(kernels[on_device], host) if device and host else host
    untimed = ints(kernels[kernels["untimed"] > 0], "start_ns").tolist()
    latest = {max((step[1] for step in steps if step[1] <= start_ns), default=-1) for start_ns in untimed}
    timed = [step for step in steps if step[1] not in latest]
    if untimed and not timed:
        raise ValueError(f"{path}: {counted(len(untimed), 'kernel')} or copies have no usable duration, in each step")
    rows = [
        (begin, end, *collective, next((number for number, first, last in host if first <= launch_ns < last), -1))
        for (begin, end), collective, launch_ns in zip(
            _spans(collectives), collectives["collective"], _launched(collectives).tolist(), strict=True
        )
    ]
    timeline = RankTimeline(
        rank=rank,
        path=path,
        host=recording.host,
        world_size=recording.world_size,
        device_name=recording.device_name if device else "",
        device=device,
        untimed=len(untimed),
        compute=_spans(computing),
        memory=_spans(kernels[kernels["what"].isin(("memcpy", "memset"))]),
        collectives=pd.DataFrame(rows, columns=list(COLLECTIVE_COLUMNS)).sort_values(
            "start_ns", kind="stable", ignore_index=True
        ),
        steps=pd.DataFrame(timed, columns=list(STEP_COLUMNS)),
    )
    return timeline.later(recording.begin_ns)


def _spans(rows: pd.DataFrame) -> Ints:
    """Return start and end of each row in ns. Raises ValueError for times beyond 64 bits."""
    start_ns = ints(rows, "start_ns")
    end_ns = start_ns + ints(rows, "time_ns")
    if (start_ns < 0).any() or (end_ns < start_ns).any():
        raise ValueError("expected times in ns within 64 bits, got later ones")
    return np.stack([start_ns, end_ns], axis=1)


def _launched(rows: pd.DataFrame) -> Ints:
    """Return when each row was launched in ns, or, where that is not recorded, when it began."""
    start_ns = ints(rows, "start_ns")
    launch_ns = ints(rows, "launch_start_ns") if "launch_start_ns" in rows else start_ns
    return np.where(launch_ns >= 0, launch_ns, start_ns)


def _device_steps(kernels: pd.DataFrame, host: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (number, start, end) of each step: from its first kernel to that of the next step; the last step ends with
    its last kernel."""
    launched, spans = _launched(kernels), _spans(kernels)
    order = np.argsort(launched)
    owns = [
        (number, order[slice(*np.searchsorted(launched, (begin, end), sorter=order))]) for number, begin, end in host
    ]
    windows = [(number, int(spans[own, 0].min()), int(spans[own, 1].max())) for number, own in owns if len(own)]
    return [
        (number, begin, windows[index + 1][1] if index + 1 < len(windows) else end)
        for index, (number, begin, end) in enumerate(windows)
    ]
