"""Writes one run directory, append-only: `Store.create` and `Store.resume` open it, `commit` stores an attempt.

`commit` takes a `Run` and its rows by file. A cell's rows go to their files first, each file in one write and one
fsync. The cell's row in runs.csv goes last and commits them. A kill at any moment therefore leaves a cell either whole
or uncommitted. An attempt number is used once, so that uncommitted rows are never taken for a later attempt's. Only
manifest.json is rewritten, and runs.csv of an older schema when its run is resumed. The caller decides when to write,
and what to do about a failed cell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results.errors import Inconsistent
from results.records.cell import Ceiling, Run, SessionRow
from results.records.counts import FlopCount, Operation, ProfiledOperation, Storage
from results.records.rows import SCHEMA_VERSION, Record
from results.store import disk as store_disk
from results.store import layout
from results.store.disk import DISK, Disk, faults
from results.store.layout import (
    CEILINGS,
    CHECKSUMMED,
    COUNTED,
    FLOP_COUNTS,
    OPERATIONS,
    PROFILES,
    RESUMABLE,
    RUNS,
    SESSIONS,
    add_columns,
    head_of,
)
from results.store.manifest import MANIFEST, Manifest, check_comparable, read_manifest, write_manifest
from results.store.reading import RunData, read_operations, read_profile, read_run
from results.text_files import unpack

__all__ = ["FAILED", "Store", "RunData", "read_operations", "read_profile", "read_run"]

NOT_CONVERGED = "not_converged"

FAILED = ("out_of_memory", "timeout", "device_error", "crashed")
"""Statuses that a resumed sweep keeps unless it is told to retry them."""

_UNTRACED = tuple(f"trace: {status}: " for status in FAILED)
"""Prefixes of a warning of a cell whose trace failed."""

INTERRUPTED = "interrupted"
"""Status of cells that a resumed sweep always measures again."""

_LOCK = ".lock"


class Store:
    """One run directory, held by this process exclusively until `close`.

    Every method that writes raises StoreFault, from its cause, when the system refuses; whole rows are kept and
    `resume` goes on. Open one with `Store.create` or `Store.resume`; the constructor is internal.
    """

    def __init__(self, path: Path, manifest: Manifest, disk: Disk, held: int) -> None:
        self.path = path
        self.manifest = manifest
        self.sessions: list[SessionRow] = []
        self._disk = disk
        self._held: int | None = held
        self._attempts: dict[str, int] = {}
        self._statuses: dict[str, str] = {}
        self.incomplete_cells: set[str] = set()
        """Cells with a requested pass without time, profile or recording, or with a trace or counter that failed."""
        self._last_checksums: dict[str, bytes] = {}
        self._heads = {file: head_of(file) for file in layout.RECORDS}
        self._counted = {file: self._heads[file] for file in COUNTED}

    @classmethod
    def create(cls, path: Path | str, manifest: Manifest, disk: Disk = DISK) -> Store:
        """Begin a run in a directory that is new or empty, and hold it.

        Raises ValueError for a directory that holds a run or anything else, cannot be written, or is held by another
        process; StoreFault if the disk is full or broken.
        """
        path = Path(path)
        check_vacant(path)
        with faults(path, opening=True):
            store_disk.make_directory(disk, path)
            held = store_disk.lock(disk, path / _LOCK)
        store = cls(path, manifest, disk, held)
        try:
            check_vacant(path)  # another sweep may have come and gone before the lock was ours
            write_manifest(path, manifest, disk)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def resume(cls, path: Path | str, disk: Disk = DISK) -> Store:
        """Open a run to go on with it, and hold it.

        Raises ValueError for a directory that holds no run, one too old or too new to resume, or a published one, that
        cannot be written, has a link in it, or is held by another process.
        """
        path = Path(path)
        if (version := read_manifest(path).schema_version) < RESUMABLE:
            needs = f"--resume needs version {RESUMABLE} or newer: start a new run"
            raise ValueError(f"{path} has schema version {version}, {needs}")
        if any((path / file).exists() for file in layout.PACKED.values()):
            raise ValueError(f"{path} is a published run, whose operation tables are in one file: start a new run")
        store_disk.check_links(path)
        with faults(path, opening=True):
            held = store_disk.lock(disk, path / _LOCK)
        store = cls(path, read_manifest(path), disk, held)
        try:
            with faults(path, opening=True):
                for leftover in path.rglob(".*.tmp"):  # of a killed writer, whose torn lines the next append cuts
                    disk.unlink(leftover)
                add_columns(path, disk)
            data = read_run(path)
            for file in layout.RECORDS:
                lines = (store_disk.read(layout.path_of(path, file)) or b"").split(b"\n")[:-1]
                if not lines:
                    continue
                store._heads[file] = lines[0] + b"\n"
                if layout.column_names(lines[0]) != [*layout.columns(file)]:
                    raise ValueError(f"{path / file} was written with other columns: start a new run")
                if file in CHECKSUMMED and lines[1:]:
                    store._last_checksums[file] = lines[-1].rpartition(b",")[2]
                if file in COUNTED:
                    store._counted[file] = b"".join(line + b"\n" for line in lines)
            if store.manifest.schema_version < SCHEMA_VERSION:
                store.replace_manifest(dataclasses.replace(store.manifest, schema_version=SCHEMA_VERSION))
        except BaseException:
            store.close()
            raise
        store.sessions = data.sessions
        store._attempts = dict(data.attempts)
        for run in data.runs:
            files = {file for file in run.committed if file.startswith(f"{PROFILES}/")}
            if not files & data.damaged:  # a cell with a damaged profile is measured again
                store._count(run, data.by_cell(FlopCount).get(layout.key_of(run), ()))
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the directory; a second call does nothing."""
        if self._held is not None:
            held, self._held = self._held, None
            with faults(self.path):
                self._disk.close(held)

    def next_attempt(self, cell_id: str) -> int:
        """Return the number for the next attempt at a cell: above any that a file holds a row of, committed or not."""
        return self._attempts.get(cell_id, 0) + 1

    def done(self, retry_failed: bool = False, retry_unconverged: bool = False) -> dict[str, str]:
        """Return cell_id → status, of the cells that need no more measuring.

        The status is that of a cell's last committed attempt, if its rows and profiles are intact. Interrupted cells
        are never done. Cells that failed or are in `incomplete_cells` are done unless `retry_failed`, and those whose
        interval did not become narrow unless `retry_unconverged`.
        """
        again = {INTERRUPTED, *(FAILED if retry_failed else ()), *((NOT_CONVERGED,) if retry_unconverged else ())}
        lacking = self.incomplete_cells if retry_failed else set()
        return {
            cell_id: status
            for cell_id, status in self._statuses.items()
            if status not in again and cell_id not in lacking
        }

    def commit(self, run: Run, rows: Mapping[str, Sequence[Record]]) -> None:
        """Store one attempt at a cell: its rows by file name, then its row in runs.csv, which commits them.

        `run.committed` is filled in here, with the files of `run.trace_id` too. An attempt number counts as used from
        the first write on, even if the commit fails. Raises ValueError before anything is written: for a used attempt
        number, a trace that was not written, or a value that could not be read back.
        """
        self._check_attempt(run.cell_id, run.attempt)
        blocks = {file: layout.encode(records) for file, records in rows.items() if records}
        entries = {
            file: layout.count_and_checksum(len(rows[file]), self._heads[file] + block)
            for file, block in blocks.items()
        }
        for file, content in self._counted.items():
            if count := content.count(b"\n") - 1:
                entries[file] = layout.count_and_checksum(count, content)
        committed = {**run.committed, **self._committed_of(run.trace_id), **entries}
        line = layout.encode([dataclasses.replace(run, committed=committed)])
        self._attempts[run.cell_id] = run.attempt
        for file, block in blocks.items():
            self._append(file, block)
        self._append(RUNS, line)
        self._count(run, rows.get(FLOP_COUNTS, ()))

    def write_operations(
        self, trace_id: str, operations: Iterable[Operation], storages: Iterable[Storage]
    ) -> dict[str, list[Any]]:
        """Store the operation table of a trace, once: return file → [rows, checksum], as `Run.committed` holds it.

        Files with the same content are kept, damaged ones are written again. Raises Inconsistent if the trace is there
        with other content.
        """
        tables: list[list[Record]] = [list(operations), list(storages)]
        files = layout.operation_files(trace_id)
        with faults(self.path / OPERATIONS):
            store_disk.make_directory(self._disk, self.path / OPERATIONS)
        for (file, record), rows in zip(files.items(), tables, strict=True):
            content, before, path = layout.head(record) + layout.encode(rows), b"", self.path / file
            with contextlib.suppress(ValueError):
                before = unpack(store_disk.read(path) or b"")
            if before not in (b"", content):
                raise Inconsistent(f"{path} is there and differs: two tables for one trace")
            if not before:
                with faults(path):
                    store_disk.replace(self._disk, path, layout.compress(content))
        return self._committed_of(trace_id)

    def has_operations(self, trace_id: str) -> bool:
        """Return whether the operation table of a trace exists and is whole. It is read."""
        try:
            read_operations(self.path, trace_id)
        except (ValueError, Inconsistent):
            return False
        return True

    def write_profile(self, cell_id: str, attempt: int, rows: Sequence[ProfiledOperation]) -> dict[str, list[Any]]:
        """Store what a profiler recorded in an attempt: return file → [rows, checksum], which its Run commits.

        Put the result into `Run.committed`. Files that a killed sweep left for the same attempt are replaced. Raises
        ValueError for an attempt number that is used, or a value that could not be read back.
        """
        packed = layout.compress(layout.head(ProfiledOperation) + layout.encode(rows))
        return self._keep(cell_id, attempt, {layout.profile_file(cell_id, attempt): (len(rows), packed)})

    def write_recording(
        self, cell_id: str, attempt: int, pass_name: str, source: str, packed: bytes, command: str = ""
    ) -> dict[str, list[Any]]:
        """Store one pass's recording, compressed, as its recorder wrote it: return file → [1, checksum].

        command: the command that recorded it, stored beside it; empty: there was none. The files are committed and
        replaced as those of `write_profile`. Raises ValueError for an attempt number that is used.
        """
        files = {layout.recording_file(cell_id, attempt, pass_name, source): (1, packed)}
        if command:
            file = layout.recording_file(cell_id, attempt, pass_name, source, layout.COMMAND)
            files[file] = 1, f"{command}\n".encode()
        return self._keep(cell_id, attempt, files)

    def _keep(self, cell_id: str, attempt: int, files: Mapping[str, tuple[int, bytes]]) -> dict[str, list[Any]]:
        """Store the files of an attempt. files: name → number of rows, and content."""
        self._check_attempt(cell_id, attempt)
        for file, (_, content) in files.items():
            with faults(self.path / file):
                store_disk.make_directory(self._disk, self.path / PROFILES)
                store_disk.replace(self._disk, self.path / file, content)
        return {file: layout.count_and_checksum(rows, content) for file, (rows, content) in files.items()}

    def _check_attempt(self, cell_id: str, attempt: int) -> None:
        if attempt < (free := self.next_attempt(cell_id)):
            raise ValueError(f"attempt {attempt} of cell {cell_id} is used, the next is {free}")

    def append_session(self, session: SessionRow) -> None:
        """Store the session, with the machine, that the following rows come from.

        Raises ValueError if the name is taken, or if the machine may not go on with this run (`manifest.differing`).
        """
        if any(session.session == other.session for other in self.sessions):
            raise ValueError(f"expected a new session, got {session.session!r}, which the run has")
        for other in self.sessions:
            check_comparable(other, session)
        self._append(SESSIONS, layout.encode([session]))
        self.sessions.append(session)

    def append_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        """Store ceilings, which belong to no attempt."""
        if ceilings:
            self._append(CEILINGS, layout.encode(ceilings))

    def replace_manifest(self, manifest: Manifest) -> None:
        """Replace the run's manifest, atomically."""
        write_manifest(self.path, manifest, self._disk)
        self.manifest = manifest

    def _count(self, run: Run, counts: Sequence[Record]) -> None:
        """Remember a cell's status, and whether it is incomplete (`incomplete_cells`). A trace or counter that failed
        counts only with a status of FAILED, which another attempt may not have."""
        self._statuses[run.cell_id] = run.status
        untraced = any(warning.startswith(_UNTRACED) for warning in run.warnings)
        uncounted = any(getattr(count, "status", "") in FAILED for count in counts)
        lacks = run.unprofiled or untraced or uncounted
        (self.incomplete_cells.add if lacks else self.incomplete_cells.discard)(run.cell_id)

    def _append(self, file: str, block: bytes) -> None:
        last = b""
        if file in CHECKSUMMED:
            block, last = layout.add_checksums(self._heads[file], block, self._last_checksums.get(file, b""))
        with faults(self.path / file):
            store_disk.append(self._disk, layout.path_of(self.path, file), self._heads[file], block)
        self._last_checksums[file] = last
        if file in COUNTED:
            self._counted[file] += block

    def _committed_of(self, trace_id: str) -> dict[str, list[Any]]:
        """Return file → [rows, checksum] of a trace, written in this session or an earlier one; {} for no trace."""
        entries = {}
        for file in layout.operation_files(trace_id) if trace_id else ():
            packed = store_disk.read(self.path / file)
            if packed is None:
                raise ValueError(f"expected a trace that was written, got {trace_id!r}: there is no {file}")
            entries[file] = layout.count_and_checksum(unpack(packed).count(b"\n") - 1, packed)
        return entries


def check_vacant(path: Path) -> None:
    """Raise ValueError unless `path` is absent or a directory without anything but what a killed `create` leaves."""
    with faults(path, opening=True):  # a name too long, a directory above that may not be searched
        if not path.exists():
            return
    if not path.is_dir():
        raise ValueError(f"expected a directory for the run, got the file {path}")
    try:
        names = {entry.name for entry in path.iterdir()} - {_LOCK, f".{MANIFEST}.tmp"}
    except OSError as fault:
        raise ValueError(f"expected a directory that can be read, got {path}: {fault.strerror}") from fault
    if MANIFEST in names:
        raise ValueError(f"{path} holds a run already: pass --resume to go on with it, or name another directory")
    if names:
        raise ValueError(f"expected a new or empty directory, got {path}, which holds {sorted(names)[0]}")
