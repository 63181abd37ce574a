"""Reads a run directory: `read_run` takes its path and returns a `RunData`, with a line for each problem.

A row of runs.csv commits one attempt to measure a cell, with the number and checksum of the attempt's rows in other
files. `RunData` has the committed and intact rows. A torn last line is dropped. Rows of an attempt that is not
committed are left out and counted. An attempt whose rows differ from the committed number or checksum is left out whole
and named. Nothing is repaired and nothing is averaged. A run can be read without a lock while it is written, because
runs.csv is read first and its rows are written last. pandas is imported only for tables.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from results.errors import Inconsistent
from results.process import collector_off
from results.records.cell import Ceiling, Run, Sample, SessionRow, Telemetry
from results.records.counts import FlopCount, Operation, ProfiledOperation, Storage
from results.records.rows import SCHEMA_VERSION, R
from results.store import layout
from results.store.disk import check_links, read
from results.store.layout import (
    CEILINGS,
    CELL_FILES,
    CHECKSUM,
    COUNTED,
    RUNS,
    SESSIONS,
    SINCE,
    Key,
    key_of,
    read_block,
    records,
    row_checksum,
    table,
)
from results.store.manifest import MANIFEST, Manifest, checksum_problem, read_manifest
from results.text_files import unpack

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

_NOT_AS_WRITTEN = "not as it was written: its checksum does not match, or rows before it are gone or moved"


@dataclass(frozen=True)
class RunData:
    """One run, as far as it is committed and intact.

    runs: the last committed attempt of each cell, in the order of their commits. all_runs: every readable row of
    runs.csv, including older and damaged attempts. rows: file → the records of `runs`. problems: what was left out and
    why, a line each. damaged: profiles and recordings that are not what was committed. unchecked: files whose rows have
    no checksum, as in runs of older versions. attempts: cell → the last attempt that any file has a row of, committed
    or not.

    `records` returns the rows of one kind; `samples`, `telemetry` and `flop_counts` are pandas tables of them.
    """

    path: Path
    manifest: Manifest
    runs: list[Run]
    all_runs: list[Run]
    sessions: list[SessionRow]
    ceilings: list[Ceiling]
    rows: Mapping[str, Sequence[Any]]
    problems: list[str]
    damaged: frozenset[str] = frozenset()
    unchecked: tuple[str, ...] = ()
    attempts: Mapping[str, int] = field(default_factory=dict)
    _by_cell: dict[type, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def records(self, record: type[R]) -> Sequence[R]:
        """Return the rows of one kind: Sample, Telemetry, FlopCount or one of several ranks, in the order of their
        cells."""
        file = next(file for file, kind in CELL_FILES.items() if kind is record)
        return self.rows.get(file, ())

    def by_cell(self, record: type[R]) -> Mapping[Key, Sequence[R]]:
        """Return attempt → its rows of one kind; computed once."""
        cells: Mapping[Key, Sequence[R]] | None = self._by_cell.get(record)
        if cells is None:
            cells = self._by_cell[record] = layout.by_cell(self.records(record))
        return cells

    @functools.cached_property
    def samples(self) -> pd.DataFrame:
        """One row per timed block: the fields of `Sample`."""
        return table(Sample, self.records(Sample))

    @functools.cached_property
    def telemetry(self) -> pd.DataFrame:
        """One row per poll: the fields of `Telemetry`."""
        return table(Telemetry, self.records(Telemetry))

    @functools.cached_property
    def flop_counts(self) -> pd.DataFrame:
        """One row per counter's number: the fields of `FlopCount`."""
        return table(FlopCount, self.records(FlopCount))


class _Files:
    """The tables of one run directory, and what is wrong with them.

    tops, names: file → its header line, its column names. counted: file of COUNTED → the checksum of its header and
    first N rows, for every N. blocks: file of a cell → attempt → its whole lines.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.version = path, read_manifest(path).schema_version
        check_links(path)
        self.problems = list(filter(None, [checksum_problem(path)]))
        self.unchecked = [MANIFEST] if self.version < SINCE else []
        self.tops: dict[str, bytes] = {}
        self.names: dict[str, list[str]] = {}
        self.counted: dict[str, dict[int, str]] = {file: {} for file in COUNTED}
        self.blocks: dict[str, dict[Key, bytes]] = {}

    def body(self, file: str) -> bytes:
        """Return a file without its header; a torn last line is dropped and reported. In a run of the current schema
        version a column that is unknown or missing is reported, too. Raises ValueError for an unreadable header."""
        data = read(layout.path_of(self.path, file)) or b""
        end, start = data.rfind(b"\n") + 1, data.find(b"\n") + 1
        if end < len(data):
            self.problems.append(f"{file}: a torn last line was dropped")
        if not end:
            return b""
        top = data[: start - 1]
        try:
            names = layout.column_names(top)
        except ValueError as fault:
            raise ValueError(f"{self.path / file} has no readable header: {fault}") from fault
        self.tops[file], self.names[file] = top, names
        if self.version == SCHEMA_VERSION:
            expected = layout.columns(file)
            unknown = [f"{name} is unknown and was left out" for name in names if name not in expected]
            missing = [f"{name} is missing, taken as its default" for name in expected if name not in names]
            self.problems += [f"{file}: column {message}" for message in (*unknown, *missing)]
        return data[start:end]

    def rows(self, file: str, record: type[R]) -> list[R]:
        """Return the rows of runs.csv, sessions.csv or ceilings.csv; a row that was changed or cannot be read is left
        out and reported with its line number."""
        lines, good, faults = layout.lines_of(self.body(file)), list[tuple[int, Any]](), list[tuple[int, Any]]()
        names, top, before, rows = self.names.get(file, [""]), self.tops.get(file, b""), b"", list[R]()
        if lines and names[-1] != CHECKSUM:
            self.unchecked.append(file)
        whole = hashlib.sha256(top + b"\n")
        for number, line in enumerate(lines, start=1):
            row, _, written = line.rpartition(b",")
            is_whole = names[-1] != CHECKSUM or written == row_checksum(top, row, before)
            (good if is_whole else faults).append((number, line if is_whole else _NOT_AS_WRITTEN))
            before = written
            if file in COUNTED:
                whole.update(line + b"\n")
                self.counted[file][number] = whole.copy().hexdigest()[:16]
        for group, result in _in_groups(
            good, len(lines) or 1, lambda group: read_block(record, names, b"".join(line + b"\n" for _, line in group))
        ):
            if isinstance(result, ValueError):
                faults.append((group[0][0], result))
            else:
                rows += result
        self.problems += [f"{file}, line {number + 1}: left out, {fault}" for number, fault in sorted(faults)]
        return rows

    def sort_by_attempt(self, file: str) -> None:
        """Fill `blocks`. A line without a readable attempt goes under ("", 0), which is never committed."""
        groups: dict[Key, list[bytes]] = {}
        for stretch in _STRETCH.finditer(self.body(file)):
            key = "", 0
            with contextlib.suppress(ValueError):  # a damaged line
                cell_id, attempt = stretch.group().partition(b"\n")[0].split(b",", 2)[:2]
                key = cell_id.decode(), int(attempt)
            groups.setdefault(key, []).append(stretch.group())
        self.blocks[file] = {key: b"".join(stretches) for key, stretches in groups.items()}

    def intact(self, runs: Sequence[Run]) -> dict[Key, list[str]]:
        """Compare what each attempt committed with what is there, and report each difference. Return each intact
        attempt → its damaged profiles and recordings, which leave it intact; any other damage does not."""
        names = {layout.current_name(file) for run in runs for file in run.committed}
        of_files = {file: self.checksum(file) for file in names if file not in (*CELL_FILES, *COUNTED)}
        intact = {}
        for run in runs:
            of_cell, lost, damaged = f"attempt {run.attempt} of cell {run.cell_id}", list[str](), list[str]()
            for file, entry in run.committed.items():
                file = layout.current_name(file)
                if file in CELL_FILES:
                    block = self.blocks[file].get(key_of(run), b"")
                    top = self.tops.get(file, b"") + b"\n" if self.version >= SINCE else b""
                    if entry != layout.count_and_checksum(block.count(b"\n"), top + block):
                        lost.append(file)
                elif not isinstance(entry, list) or len(entry) != 2:
                    lost.append(file)
                elif file in COUNTED:
                    if self.counted[file].get(entry[0]) != entry[1]:
                        self.problems.append(f"{file}: rows that were there at {of_cell} are gone or changed")
                elif entry[1] != of_files[file]:
                    (damaged if file.startswith(f"{layout.PROFILES}/") else lost).append(file)
            if lost:
                self.problems.append(f"{of_cell} left out: not what was committed in {', '.join(lost)}")
            else:
                self.problems += [f"{of_cell}: {file} is not what was committed" for file in damaged]
                intact[key_of(run)] = damaged
        return intact

    def rows_of(self, runs: Sequence[Run]) -> dict[str, list[Any]]:
        """Return file → the rows of these attempts, in their order. Raises ValueError, naming the file."""
        rows = {}
        for file, record in CELL_FILES.items():
            if file in self.names:
                held = [self.blocks[file][key_of(run)] for run in runs if run.committed.get(file, [0])[0]]
                rows[file] = records(file, record, self.names[file], b"".join(held))
        return rows

    def checksum(self, file: str) -> str:
        """Return a committed file's checksum; "missing" if it does not exist or cannot be read, or if no run commits a
        file of this name."""
        with contextlib.suppress(ValueError):
            if layout.is_committed_name(file) and (data := read(self.path / file)) is not None:
                return layout.checksum(data)
        return "missing"


_CELLS_AT_ONCE = 10
"""Number of cells whose rows are read at once: few, so that their texts stay in the processor's caches."""


def _in_groups(
    parts: Sequence[T], size: int, read_group: Callable[[Sequence[T]], Any]
) -> Iterator[tuple[Sequence[T], Any]]:
    """Call `read_group` on groups of at most `size` parts, and yield each group with its result. A group that raises
    ValueError is read part by part, and a part that raises it is yielded with the error."""
    for start in range(0, len(parts), size):
        group = parts[start : start + size]
        try:
            yield group, read_group(group)
        except ValueError as fault:
            if len(group) == 1:
                yield group, fault
            else:
                yield from _in_groups(group, 1, read_group)


_STRETCH = re.compile(rb"([^,\n]*,[^,\n]*,)[^\n]*+\n(?:\1[^\n]*+\n)*+|[^\n]*+\n")
"""Matches consecutive lines that begin with the same two fields, or a single line without two."""


@collector_off()  # rows are in no cycles; over a million of them it takes as long as reading
def read_run(path: Path | str) -> RunData:
    """Read the committed and intact part of the run directory `path`.

    Raises ValueError if it is not a run, has a link in it, or is of a schema that cannot be read here, and if the rows
    of none of its attempts can be read.
    """
    files = _Files(Path(path))
    problems, run_of = files.problems, dict[Key, Run]()
    for run in files.rows(RUNS, Run):
        if run_of.setdefault(key_of(run), run) is not run:  # no writer repeats an attempt
            problems.append(f"{RUNS}: attempt {run.attempt} of cell {run.cell_id} again, left out")
    for file in CELL_FILES:
        files.sort_by_attempt(file)
    sessions, ceilings = files.rows(SESSIONS, SessionRow), files.rows(CEILINGS, Ceiling)
    all_runs = list(run_of.values())
    intact = files.intact(all_runs)
    for file, blocks in files.blocks.items():
        committed = {key for key, run in run_of.items() if file in run.committed}
        if left_out := sum(block.count(b"\n") for key, block in blocks.items() if key not in committed):
            problems.append(f"{file}: {left_out} rows are not committed, left out")
    known = {session.session for session in sessions}
    for name in sorted({run.session for run in all_runs} - known):
        problems.append(f"{RUNS}: {SESSIONS} does not have the session {name}")
    last = dict(sorted(run_of))  # cell → its last attempt
    latest = [run for key, run in run_of.items() if last[run.cell_id] == run.attempt and key in intact]
    runs, rows, faults = list[Run](), {file: list[Any]() for file in CELL_FILES}, list[ValueError]()
    for group, result in _in_groups(latest, _CELLS_AT_ONCE, files.rows_of):
        if isinstance(result, ValueError):
            faults.append(result)
            problems.append(f"attempt {group[0].attempt} of cell {group[0].cell_id} left out: {result}")
            continue
        runs += group
        for file, group_rows in result.items():
            rows[file] += group_rows
    if faults and not runs:
        raise faults[0]
    return RunData(
        path=files.path,
        manifest=read_manifest(files.path),
        runs=runs,
        all_runs=all_runs,
        sessions=sessions,
        ceilings=ceilings,
        rows=rows,
        problems=problems,
        damaged=frozenset().union(*intact.values()),
        unchecked=tuple(files.unchecked),
        attempts=dict(sorted((*run_of, *(key for blocks in files.blocks.values() for key in blocks)))),
    )


def read_operations(path: Path | str, trace_id: str) -> tuple[list[Operation], list[Storage]]:
    """Read the operation table of one trace.

    Raises ValueError for a trace that the run does not have, Inconsistent if its files are damaged.
    """
    return read_operation_table(path, trace_id), _trace_rows(Path(path), trace_id, Storage)


def read_operation_table(path: Path | str, trace_id: str) -> list[Operation]:
    """Read the operations of a trace without their storages. Raises as `read_operations` does."""
    return _trace_rows(Path(path), trace_id, Operation)


def _trace_rows(path: Path, trace_id: str, record: type[R]) -> list[R]:
    """Return the rows of one trace, from its own file or from the one of all traces."""
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
def _packed_traces(file: Path, modified_ns: int, size: int) -> tuple[list[str], dict[str, list[bytes]]]:
    """Return the column names of a file of all traces, and trace_id → its lines, in any order. modified_ns, size: the
    file's, so that a replaced one is read again. Raises ValueError if it is damaged."""
    top, _, body = unpack(read(file) or b"").partition(b"\n")
    (names,) = layout.decode([top])
    traces: dict[str, list[bytes]] = {}
    for line in body.splitlines(keepends=True):
        traces.setdefault(line.partition(b",")[0].decode(), []).append(line)
    return names, traces


def read_profile(path: Path | str, cell_id: str, attempt: int) -> list[ProfiledOperation]:
    """Read what a profiler recorded in one attempt at a cell, all its passes.

    Raises ValueError for an attempt that has no profile, Inconsistent if its file is damaged.
    """
    return _read_packed(Path(path), layout.profile_file(cell_id, attempt), ProfiledOperation)


def _read_packed(path: Path, file: str, record: type[R]) -> list[R]:
    if not (path / file).exists():
        raise ValueError(f"the run {path} has no {file}")
    try:
        return layout.read_records(path / file, record)
    except (ValueError, OSError) as fault:
        raise Inconsistent(str(fault)) from fault
