"""Reading a run: what is committed and intact, and a line for each thing that is not.

A torn last line is dropped, rows that no row of runs.csv commits are left out and counted, and an attempt whose rows
do not have the committed number and checksum is left out whole and named. Nothing is repaired and nothing is averaged.
Needs no lock: a run can be read while it is written, because runs.csv is read first and its rows are written last.
pandas is imported only where somebody asks for a table.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import Inconsistent
from results.process import collector_off
from results.records.cell import Ceiling, Run, Sample, Sitting, Telemetry
from results.records.counts import FlopCount, Operation, ProfiledOperation, Storage
from results.records.rows import SCHEMA_VERSION, R
from results.store import layout
from results.store.disk import check_links, read
from results.store.layout import (
    CEILINGS,
    CELL_FILES,
    FLOP_COUNTS,
    RUNS,
    SITTINGS,
    BrokenSeal,
    Key,
    check_seal,
    prefixes,
    read_block,
    records,
    table,
)
from results.store.manifest import MANIFEST, Manifest, read_manifest, seal_problem
from results.text_files import unpack

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunData:
    """One run, as far as it is committed and intact.

    runs: the last committed attempt of each cell, in the order of their commits. all_runs: every row of runs.csv that
    can be read, older and damaged attempts too. rows: file → the records of `runs`. problems: what was left out and
    why, a line each. damaged: profiles and recordings that are not what was committed. unsealed: files that a number
    comes from without a checksum in them, as runs of older versions have.

    `records` gives the rows of one kind. The same as pandas tables, for whoever works with those: `samples`,
    `telemetry`, `flop_counts`.
    """

    path: Path
    manifest: Manifest
    runs: list[Run]
    all_runs: list[Run]
    sittings: list[Sitting]
    ceilings: list[Ceiling]
    rows: Mapping[str, Sequence[Any]]
    problems: list[str]
    damaged: frozenset[str] = frozenset()
    unsealed: tuple[str, ...] = ()
    _by_cell: dict[type, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def records(self, record: type[R]) -> Sequence[R]:
        """The rows of one kind: Sample, Telemetry, FlopCount or one of several ranks, in the order of their cells."""
        file = next(file for file, kind in CELL_FILES.items() if kind is record)
        return self.rows.get(file, ())

    def by_cell(self, record: type[R]) -> Mapping[Key, Sequence[R]]:
        """Attempt → its rows of one kind; sorted once, since they are asked for again and again."""
        cells: Mapping[Key, Sequence[R]] | None = self._by_cell.get(record)
        if cells is None:
            cells = self._by_cell[record] = layout.by_cell(self.records(record))
        return cells

    @functools.cached_property
    def samples(self) -> pd.DataFrame:
        """One row a timed block: the fields of `Sample`."""
        return table(Sample, self.records(Sample))

    @functools.cached_property
    def telemetry(self) -> pd.DataFrame:
        """One row a poll: the fields of `Telemetry`."""
        return table(Telemetry, self.records(Telemetry))

    @functools.cached_property
    def flop_counts(self) -> pd.DataFrame:
        """One row a counter's number: the fields of `FlopCount`."""
        return table(FlopCount, self.records(FlopCount))


@dataclass
class Scan:
    """The lines of a run, sorted by attempt and checked against runs.csv.

    blocks: file → attempt → its whole lines.
    tops: file → its header line. counted: file of `layout.COUNTED` → the checksum of its first N rows, for every N.
    intact: the attempts whose rows are all there. damaged: files of profiles that are not what was committed, each with
    its attempt, whose other rows may be intact.
    """

    path: Path
    manifest: Manifest
    all_runs: list[Run] = field(default_factory=list)
    sittings: list[Sitting] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    heads: dict[str, list[str]] = field(default_factory=dict)
    blocks: dict[str, dict[Key, bytes]] = field(default_factory=dict)
    intact: set[Key] = field(default_factory=set)
    damaged: dict[str, Key] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    tops: dict[str, bytes] = field(default_factory=dict)
    unsealed: list[str] = field(default_factory=list)
    counted: dict[str, dict[int, str]] = field(default_factory=dict)

    def last_runs(self) -> list[Run]:
        """The last committed attempt of each cell, where its rows are intact."""
        last: dict[str, Run] = {}
        for run in self.all_runs:
            if run.cell_id not in last or run.attempt > last[run.cell_id].attempt:
                last.pop(run.cell_id, None)
                last[run.cell_id] = run
        return [run for run in last.values() if layout.key_of(run) in self.intact]

    def has_counts_of(self, run: Run, statuses: Sequence[str]) -> bool:
        """Whether a counter's row of this attempt has one of these statuses."""
        block = self.blocks.get(FLOP_COUNTS, {}).get(layout.key_of(run), b"")
        return any(f",{status},".encode() in block for status in statuses)


@collector_off()  # rows are in no cycles; over a million of them it takes as long as reading
def read_run(path: Path | str) -> RunData:
    """The committed and intact part of the run directory `path`.

    Raises ValueError if it is no run or of a schema that cannot be read here.
    """
    state = scan(Path(path))
    rows: dict[str, list[Any]] = {file: [] for file in CELL_FILES}
    runs, faults = list[Run](), list[ValueError]()
    for run in state.last_runs():
        try:
            own = _rows_of(state, run)
        except ValueError as fault:
            faults.append(fault)
            state.problems.append(f"attempt {run.attempt} of cell {run.cell_id} left out: {fault}")
            continue
        runs.append(run)
        for file, cell_rows in own.items():
            rows[file] += cell_rows
    if faults and not runs:
        raise faults[0]
    return RunData(
        state.path,
        state.manifest,
        runs,
        state.all_runs,
        state.sittings,
        state.ceilings,
        rows,
        state.problems,
        frozenset(state.damaged),
        tuple(state.unsealed),
    )


def _rows_of(scan: Scan, run: Run) -> dict[str, list[Any]]:
    """File → the records of a run. Raises ValueError for a row that is none."""
    key = layout.key_of(run)
    files = (file for file in scan.heads.keys() & CELL_FILES.keys() if run.committed.get(file, [0])[0])
    return {file: records(file, CELL_FILES[file], scan.heads[file], scan.blocks[file][key]) for file in files}


def read_operations(path: Path | str, trace_id: str) -> tuple[list[Operation], list[Storage]]:
    """The operation table of one trace.

    Raises ValueError for a trace that the run does not have, Inconsistent if its files are damaged.
    """
    return read_operation_table(path, trace_id), _trace_rows(Path(path), trace_id, Storage)


def read_operation_table(path: Path | str, trace_id: str) -> list[Operation]:
    """The operations of a trace without their storages. Raises as `read_operations` does."""
    return _trace_rows(Path(path), trace_id, Operation)


def _trace_rows(path: Path, trace_id: str, record: type[R]) -> list[R]:
    """The rows of one trace, from its own file or from the one of all traces."""
    packed = path / layout.PACKED[record]
    (file,) = (file for file, kind in layout.operation_files(trace_id).items() if kind is record)
    if (path / file).exists() or not packed.exists():
        return _read_packed(path, file, record)
    state = packed.stat()
    try:
        names, traces = _packed_traces(packed, state.st_mtime_ns, state.st_size)
        if trace_id in traces:
            lines = sorted(traces[trace_id], key=lambda line: int(line.split(b",", 2)[1]))
            return records(file, record, names, b"".join(lines))
    except ValueError as fault:
        raise Inconsistent(f"{packed}: {fault}") from fault
    raise ValueError(f"{packed} has no trace {trace_id}")


@functools.lru_cache(maxsize=2)
def _packed_traces(file: Path, changed_ns: int, size: int) -> tuple[list[str], dict[str, list[bytes]]]:
    """The column names of a file of all traces, and trace_id → its lines, in any order. changed_ns, size: the file's
    own, so that one that was replaced is read again. Raises ValueError if it is damaged."""
    top, _, body = unpack(read(file) or b"").partition(b"\n")
    (names,) = layout.decode([top])
    traces: dict[str, list[bytes]] = {}
    for line in body.splitlines(keepends=True):
        traces.setdefault(line.partition(b",")[0].decode(), []).append(line)
    return names, traces


def read_profile(path: Path | str, cell_id: str, attempt: int) -> list[ProfiledOperation]:
    """What a profiler recorded in one attempt at a cell, every work of it.

    Raises ValueError for an attempt that has no profile, Inconsistent if its file is damaged.
    """
    return _read_packed(Path(path), layout.profile_file(cell_id, attempt), ProfiledOperation)


def scan(path: Path) -> Scan:
    """Reads every file of a run but the traces, and checks each attempt. Raises ValueError as `read_run` does."""
    state = Scan(path, read_manifest(path))
    check_links(path)
    if problem := seal_problem(path):
        state.problems.append(problem)
    if state.manifest.schema_version < layout.SINCE:
        state.unsealed.append(MANIFEST)
    first: dict[Key, Run] = {}
    for run in _read_rows(state, RUNS, Run):
        if first.setdefault(layout.key_of(run), run) is not run:  # which no writer makes
            state.problems.append(f"{RUNS}: attempt {run.attempt} of cell {run.cell_id} again, left out")
    state.all_runs = list(first.values())
    for file in CELL_FILES:
        _sort_by_attempt(state, file)
    state.sittings = _read_rows(state, SITTINGS, Sitting)
    state.ceilings = _read_rows(state, CEILINGS, Ceiling)
    _check_attempts(state)
    committed = {(file, layout.key_of(run)) for run in state.all_runs for file in run.committed}
    left_out = Counter(
        {
            file: sum(block.count(b"\n") for key, block in groups.items() if (file, key) not in committed)
            for file, groups in state.blocks.items()
        }
    )
    state.problems += [f"{file}: {rows} rows are not committed, left out" for file, rows in left_out.items() if rows]
    known = {sitting.sitting for sitting in state.sittings}
    for name in sorted({run.sitting for run in state.all_runs} - known):
        state.problems.append(f"{RUNS}: {SITTINGS} does not have the session {name}")
    return state


def _body(scan: Scan, file: str) -> bytes:
    """A file without its header, which goes to `heads`; a torn last line is dropped and reported."""
    data = read(scan.path / file) or b""
    end = data.rfind(b"\n") + 1
    if end < len(data):
        scan.problems.append(f"{file}: a torn last line was dropped")
    if not end:
        return b""
    start = data.index(b"\n") + 1
    scan.tops[file] = data[: start - 1]
    # the column names of a file. Within one schema version each difference from the record is reported
    try:
        (names,) = layout.decode([scan.tops[file]])
    except ValueError as fault:
        raise ValueError(f"{scan.path / file} has no readable header: {fault}") from fault
    if scan.manifest.schema_version == SCHEMA_VERSION:
        expected = layout.columns(file)
        unknown = [name for name in names if name not in expected]
        missing = [name for name in expected if name not in names]
        scan.problems += [f"{file}: column {name} is unknown and was left out" for name in unknown]
        scan.problems += [f"{file}: column {name} is missing, taken as its default" for name in missing]
    scan.heads[file] = names
    return data[start:end]


def _read_rows(scan: Scan, file: str, record: type[R]) -> list[R]:
    """Rows that stand for themselves; one that cannot be read is reported with its line number."""
    lines = layout.lines_of(_body(scan, file))
    if file in layout.COUNTED:
        scan.counted[file] = prefixes(scan.tops.get(file, b""), lines)
    names = scan.heads.get(file, [""])
    sealed = names[-1] == layout.SEAL
    if not sealed and lines:
        scan.unsealed.append(file)
    before, faults = b"", dict[int, BrokenSeal]()
    for number, line in enumerate(lines if sealed else (), start=2):
        try:
            before = check_seal(scan.tops[file], line, before)
        except BrokenSeal as fault:
            before, faults[number] = fault.seal, fault
    if not faults:
        with contextlib.suppress(ValueError):  # which line it is, is found below
            return read_block(record, names, b"".join(line + b"\n" for line in lines))
    rows: list[R] = []
    for number, line in enumerate(lines, start=2):
        try:
            if number in faults:
                raise faults[number]
            rows += read_block(record, names, line + b"\n")
        except ValueError as fault:
            scan.problems.append(f"{file}, line {number}: left out, {fault}")
    return rows


_STRETCH = re.compile(rb"([^,\n]*,[^,\n]*,)[^\n]*+\n(?:\1[^\n]*+\n)*+|[^\n]*+\n")
"""Lines one after the other that begin with the same two fields; a line that has no two is one by itself."""


def _sort_by_attempt(scan: Scan, file: str) -> None:
    """Sorts the lines of a file by attempt. A line without a readable attempt goes under ("", 0): never committed."""
    groups: dict[Key, list[bytes]] = {}
    for stretch in _STRETCH.finditer(_body(scan, file)):
        groups.setdefault(_key(stretch.group()), []).append(stretch.group())
    scan.blocks[file] = {key: b"".join(stretches) for key, stretches in groups.items()}


def _key(stretch: bytes) -> Key:
    """The attempt that a stretch's first line, and so each of them, names."""
    try:
        cell_id, attempt = stretch[: stretch.index(b"\n")].split(b",", 2)[:2]
        return cell_id.decode(), int(attempt)
    except ValueError:  # a damaged line
        return "", 0


def _check_attempts(scan: Scan) -> None:
    """Compares what each attempt committed with what is there, and names each attempt that differs.

    A profile or a recording that differs costs what rests on it; anything else the whole attempt.
    """
    whole_files: dict[str, str] = {}
    for run in scan.all_runs:
        faults = [file for file, sealed in run.committed.items() if not _holds(scan, run, file, sealed, whole_files)]
        fewer = [file for file in faults if file in layout.COUNTED]
        at = f"attempt {run.attempt} of cell {run.cell_id}"
        scan.problems += [f"{file}: rows that were there at {at} are gone or changed" for file in fewer]
        faults = [file for file in faults if file not in fewer]
        lost = [file for file in faults if not file.startswith(f"{layout.PROFILES}/")]
        if lost:
            scan.problems.append(
                f"attempt {run.attempt} of cell {run.cell_id} left out: not what was committed in {', '.join(lost)}"
            )
            continue
        scan.intact.add(layout.key_of(run))
        scan.damaged |= dict.fromkeys(faults, layout.key_of(run))
        scan.problems += [
            f"attempt {run.attempt} of cell {run.cell_id}: {file} is not what was committed" for file in faults
        ]


def _holds(scan: Scan, run: Run, file: str, sealed: Any, whole_files: dict[str, str]) -> bool:
    """Whether a file holds what an attempt committed there. whole_files: checksums of files that no cell owns alone."""
    if file in CELL_FILES:
        block = scan.blocks[file].get(layout.key_of(run), b"")
        top = scan.tops.get(file, b"") + b"\n" if scan.manifest.schema_version >= layout.SINCE else b""
        return bool(sealed == layout.seal(block.count(b"\n"), top + block))
    if file in layout.COUNTED:
        return isinstance(sealed, list) and len(sealed) == 2 and scan.counted[file].get(sealed[0]) == sealed[1]
    if file not in whole_files:
        whole_files[file] = _file_checksum(scan, file)
    return isinstance(sealed, list) and sealed[1:] == [whole_files[file]]


def _file_checksum(scan: Scan, file: str) -> str:
    """The checksum of a committed file. A name outside of the run's directory is not opened."""
    path = scan.path / file
    if not layout.is_committed_name(file) or not path.resolve().is_relative_to(scan.path.resolve()):
        return "no file of a run"
    try:
        data = read(path)
    except ValueError:
        return "unreadable"
    return "missing" if data is None else layout.checksum(data)


def _read_packed(path: Path, file: str, record: type[R]) -> list[R]:
    if not (path / file).exists():
        raise ValueError(f"the run {path} has no {file}")
    try:
        return layout.read_records(path / file, record)
    except (ValueError, OSError) as fault:
        raise Inconsistent(str(fault)) from fault
