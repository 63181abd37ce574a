"""The append-only writer of one run directory, and the reader beside it.

A cell's rows go to their files first, each file in one write and one fsync; its row in runs.csv goes last and commits
them. A kill at any moment therefore leaves a cell either whole or uncommitted, and rows of an uncommitted attempt are
never mistaken for a later one, because an attempt number is used once. Nothing is ever rewritten but manifest.json.
What becomes of a cell that failed, and when to write, is the caller's to decide.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results.errors import Inconsistent
from results.records.cell import Ceiling, Run, Sitting
from results.records.counts import FlopCount, Operation, ProfiledOperation, Storage
from results.records.rows import SCHEMA_VERSION, STATUSES, Record
from results.store import disk as store_disk
from results.store import layout
from results.store.disk import DISK, Disk, faults
from results.store.layout import (
    CEILINGS,
    CELL_FILES,
    FLOP_COUNTS,
    OPERATIONS,
    PROFILES,
    RUNS,
    SITTINGS,
    add_columns,
    check_resumable,
)
from results.store.manifest import MANIFEST, Manifest, check_comparable, read_manifest, write_manifest
from results.store.reading import RunData, read_operations, read_profile, read_run, scan
from results.text_files import unpack

__all__ = ["FAILED", "Store", "RunData", "read_operations", "read_profile", "read_run"]

NOT_CONVERGED = "not_converged"

FAILED = ("out_of_memory", "timeout", "device_error", "crashed")
"""Statuses that a resumed sweep keeps unless it is asked to try them again."""

_UNTRACED = tuple(f"trace: {status}: " for status in FAILED)
"""How a warning of a cell begins whose trace failed."""

INTERRUPTED = "interrupted"
"""The status that a resumed sweep always measures again."""

_LOCK = ".lock"


class Store:
    """One run directory, held by this process alone until `close`.

    Every method that writes raises StoreFault, from its cause, when the system refuses; whole rows are kept and
    `resume` goes on. `Store.create` and `Store.resume` open one; the constructor is theirs.
    """

    def __init__(self, path: Path, manifest: Manifest, disk: Disk, held: int) -> None:
        self.path = path
        self.manifest = manifest
        self.sittings: list[Sitting] = []
        self._disk = disk
        self._held: int | None = held
        self._attempts: dict[str, int] = {}
        self._statuses: dict[str, str] = {}
        self._lacking: set[str] = set()
        self._traces: dict[str, dict[str, list[Any]]] = {}
        self._seals: dict[str, bytes] = {}
        self._wholes: dict[str, list[Any]] = {
            file: [0, hashlib.sha256(layout.head_of(file))] for file in layout.COUNTED
        }

    @classmethod
    def create(cls, path: Path | str, manifest: Manifest, disk: Disk = DISK) -> Store:
        """Begins a run in a directory that is new or empty, and holds it.

        Raises ValueError for a directory that holds a run or anything else, cannot be written, or is held by another
        process; StoreFault if the disk is full or broken.
        """
        path = Path(path)
        check_vacant(path)
        with store_disk.unwritable_is_a_mistake(path):
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
        """Opens a run to go on with it, and holds it.

        Raises ValueError for a directory that holds no run, one too old or too new to resume, or a published one, that
        cannot be written, has a link in it, or is held by another process.
        """
        path = Path(path)
        check_resumable(read_manifest(path).schema_version, path)
        if any((path / file).exists() for file in layout.PACKED.values()):
            raise ValueError(f"{path} is a published run, whose operation tables are in one file: start a new run")
        store_disk.check_links(path)
        with store_disk.unwritable_is_a_mistake(path):
            held = store_disk.lock(disk, path / _LOCK)
        store = cls(path, read_manifest(path), disk, held)
        try:
            with store_disk.unwritable_is_a_mistake(path):
                _mend(disk, path)
                add_columns(path, disk)
            state = scan(path)
            for file, names in state.heads.items():
                if tuple(names) != layout.columns(file):
                    raise ValueError(f"{path / file} was written with other columns: start a new run")
            if store.manifest.schema_version < SCHEMA_VERSION:
                store.replace_manifest(dataclasses.replace(store.manifest, schema_version=SCHEMA_VERSION))
        except BaseException:
            store.close()
            raise
        store._go_on()
        store.sittings = state.sittings
        used = (*map(layout.key_of, state.all_runs), *(key for groups in state.blocks.values() for key in groups))
        store._attempts = dict(sorted(used))  # the last one of each cell, committed or not
        for run in state.last_runs():
            if layout.key_of(run) not in state.damaged.values():  # of those whose profiles are damaged nothing is done
                store._count(run, state.has_counts_of(run, FAILED))
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the directory; a second time does nothing."""
        if self._held is not None:
            held, self._held = self._held, None
            with faults(self.path):
                self._disk.close(held)

    def next_attempt(self, cell_id: str) -> int:
        """The number for the next attempt at a cell: above any that a file holds a row of, committed or not."""
        return self._attempts.get(cell_id, 0) + 1

    def done(self, retry_failed: bool = False, retry_unconverged: bool = False) -> dict[str, str]:
        """cell_id → status, of the cells that need no more measuring.

        That is the status of a cell's last committed attempt, if its rows and its profiles are intact. Interrupted
        cells are never done; cells that failed, or of which a work did, are done unless `retry_failed`, and
        those whose interval did not become narrow unless `retry_unconverged`.
        """
        again = {INTERRUPTED, *(FAILED if retry_failed else ()), *((NOT_CONVERGED,) if retry_unconverged else ())}
        lacking = self._lacking if retry_failed else set()
        return {
            cell_id: status
            for cell_id, status in self._statuses.items()
            if status not in again and cell_id not in lacking
        }

    @property
    def incomplete_cells(self) -> frozenset[str]:
        """The cells of which a work has no time, no profile or no recording, or whose trace or a counter failed, though
        it was asked for."""
        return frozenset(self._lacking)

    def commit(self, run: Run, rows: Mapping[str, Sequence[Record]]) -> None:
        """Keeps one attempt at a cell: its rows by file name, then its row in runs.csv, which commits them.

        `run.committed` is filled in here, with the files of `run.trace_id` too. An attempt number counts as used
        from the first write on, even if the commit fails. Raises ValueError before anything is written: for an
        unknown status or file, a used attempt number, rows of another attempt, a trace that was not written, or a
        value that could not be read back.
        """
        self._check(run, rows)
        blocks = {file: layout.encode(records) for file, records in rows.items() if records}
        seals = {file: layout.seal(len(rows[file]), layout.head_of(file) + block) for file, block in blocks.items()}
        seals |= {file: [count, sealed.hexdigest()[:16]] for file, (count, sealed) in self._wholes.items() if count}
        committed = {**run.committed, **self._seals_of(run.trace_id), **seals}
        line = layout.encode([dataclasses.replace(run, committed=committed)])
        self._attempts[run.cell_id] = run.attempt
        for file, block in blocks.items():
            self._append(file, block)
        self._append(RUNS, line)
        counts = rows.get(FLOP_COUNTS, ())
        self._count(run, any(isinstance(row, FlopCount) and row.status in FAILED for row in counts))

    def write_operations(
        self, trace_id: str, operations: Iterable[Operation], storages: Iterable[Storage]
    ) -> dict[str, list[Any]]:
        """Keeps the operation table of a trace, once: file → [rows, checksum], as `Run.committed` holds it.

        Files with the same content are kept, damaged ones are written again. Raises Inconsistent if the trace is
        there with other content.
        """
        tables: list[list[Record]] = [list(operations), list(storages)]
        files = layout.operation_files(trace_id)
        with faults(self.path / OPERATIONS):
            store_disk.make_directory(self._disk, self.path / OPERATIONS)
        seals = {}
        for (file, record), rows in zip(files.items(), tables, strict=True):
            packed = self._keep(file, layout.head(record) + layout.encode(rows))
            seals[file] = layout.seal(len(rows), packed)
        self._traces[trace_id] = seals
        return seals

    def has_operations(self, trace_id: str) -> bool:
        """Whether the operation table of a trace is there, and whole. It is read."""
        try:
            read_operations(self.path, trace_id)
        except (ValueError, Inconsistent):
            return False
        return True

    def write_profile(self, cell_id: str, attempt: int, rows: Sequence[ProfiledOperation]) -> dict[str, list[Any]]:
        """Keeps what a profiler recorded in an attempt: file → [rows, checksum], which its Run commits.

        Put the answer into `Run.committed`. What a killed sweep left under the same attempt is replaced. Raises
        ValueError for an attempt number that is used, or a value that could not be read back.
        """
        packed = layout.compress(layout.head(ProfiledOperation) + layout.encode(rows))
        return self._write_profile(cell_id, attempt, layout.profile_file(cell_id, attempt), len(rows), packed)

    def write_recording(
        self, cell_id: str, attempt: int, work: str, source: str, packed: bytes, command: str = ""
    ) -> dict[str, list[Any]]:
        """Keeps one work's recording, compressed, as its recorder wrote it: file → [1, checksum].

        command: what was run to record it, kept beside it; empty: no command was. Its Run commits them and they are
        replaced as a profile is (`write_profile`). Raises ValueError for an attempt number that is used.
        """
        files = {layout.recording_file(cell_id, attempt, work, source): packed}
        if command:
            files[layout.command_file(cell_id, attempt, work, source)] = f"{command}\n".encode()
        seals: dict[str, list[Any]] = {}
        for file, content in files.items():
            seals |= self._write_profile(cell_id, attempt, file, 1, content)
        return seals

    def _write_profile(self, cell_id: str, attempt: int, file: str, rows: int, packed: bytes) -> dict[str, list[Any]]:
        if attempt < self.next_attempt(cell_id):
            raise ValueError(f"attempt {attempt} of cell {cell_id} is used, the next is {self.next_attempt(cell_id)}")
        with faults(self.path / file):
            store_disk.make_directory(self._disk, self.path / PROFILES)
            store_disk.replace(self._disk, self.path / file, packed)
        return {file: layout.seal(rows, packed)}

    def append_sitting(self, sitting: Sitting) -> None:
        """Keeps what machine the following rows come from.

        Raises ValueError if the name is taken, or if the machine may not go on with this run (`manifest.differing`).
        """
        if any(sitting.sitting == other.sitting for other in self.sittings):
            raise ValueError(f"expected a new session, got {sitting.sitting!r}, which the run has")
        for other in self.sittings:
            check_comparable(other, sitting)
        self._append(SITTINGS, layout.encode([sitting]))
        self.sittings.append(sitting)

    def append_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        """Keeps ceilings; each row stands for itself."""
        if ceilings:
            self._append(CEILINGS, layout.encode(ceilings))

    def replace_manifest(self, manifest: Manifest) -> None:
        """Puts another manifest in the place of the run's, at once."""
        write_manifest(self.path, manifest, self._disk)
        self.manifest = manifest

    def _count(self, run: Run, uncounted: bool) -> None:
        """Remembers what became of a cell, and whether one of its works has no time or no profile, or its trace or one
        of its counters (uncounted) failed in a way that may pass: a process that was killed costs no count for good."""
        self._statuses[run.cell_id] = run.status
        untraced = any(warning.startswith(_UNTRACED) for warning in run.warnings)
        lacks = run.unprofiled or untraced or uncounted
        (self._lacking.add if lacks else self._lacking.discard)(run.cell_id)

    def _append(self, file: str, block: bytes) -> None:
        last = self._seals.get(file, b"")
        if file in layout.SEALED:
            block, last = layout.seal_lines(file, block, last)
        with faults(self.path / file):
            store_disk.append(self._disk, self.path / file, layout.head_of(file), block)
        self._seals[file] = last
        if file in self._wholes:
            self._wholes[file][0] += block.count(b"\n")
            self._wholes[file][1].update(block)

    def _go_on(self) -> None:
        """Takes the checksums up where an earlier session left them."""
        for file in layout.SEALED:
            lines = (store_disk.read(self.path / file) or b"").split(b"\n")[1:-1]
            self._seals[file] = lines[-1].rpartition(b",")[2] if lines else b""
            if file in self._wholes:
                self._wholes[file][0] += len(lines)
                self._wholes[file][1].update(b"".join(line + b"\n" for line in lines))

    def _check(self, run: Run, rows: Mapping[str, Sequence[Record]]) -> None:
        layout.check_name("cell_id", run.cell_id)
        if run.status not in STATUSES:
            raise ValueError(f"expected a status of {', '.join(STATUSES)}, got {run.status!r}")
        free = self.next_attempt(run.cell_id)
        if run.attempt < free:
            raise ValueError(f"attempt {run.attempt} of cell {run.cell_id} is used, the next is {free}")
        if not any(run.sitting == sitting.sitting for sitting in self.sittings):
            raise ValueError(f"expected the name of a session that was appended, got {run.sitting!r}")
        for file, records in rows.items():
            if file not in CELL_FILES:
                raise ValueError(f"expected one of {', '.join(CELL_FILES)}, got {file!r}")
            for row in records:
                if type(row) is not CELL_FILES[file] or layout.key_of(row) != layout.key_of(run):
                    raise ValueError(f"{file}: a row does not belong to attempt {run.attempt} of {run.cell_id}: {row}")

    def _seals_of(self, trace_id: str) -> dict[str, list[Any]]:
        """What the files of a trace hold, written in this session or an earlier one; nothing for no trace."""
        if trace_id and trace_id not in self._traces:
            seals = {}
            for file in layout.operation_files(trace_id):
                packed = store_disk.read(self.path / file)
                if packed is None:
                    raise ValueError(f"expected a trace that was written, got {trace_id!r}: there is no {file}")
                seals[file] = layout.seal(unpack(packed).count(b"\n") - 1, packed)
            self._traces[trace_id] = seals
        return self._traces.get(trace_id, {})

    def _keep(self, file: str, content: bytes) -> bytes:
        """Writes a compressed file unless it is there with this content; gives the bytes that are on the disk. One that
        is damaged is written again."""
        path, before = self.path / file, None
        if (there := store_disk.read(path)) is not None:
            with contextlib.suppress(ValueError):
                before = unpack(there)
            if before == content:
                return there
        if before is not None:
            raise Inconsistent(f"{path} is there and differs: two tables for one trace")
        packed = layout.compress(content)
        with faults(path):
            store_disk.replace(self._disk, path, packed)
        return packed


def _mend(disk: Disk, path: Path) -> None:
    """Cuts torn lines and removes half-written temporary files: what a killed writer can leave. Raises OSError."""
    for leftover in (*path.glob(".*.tmp"), *(path / OPERATIONS).glob(".*.tmp"), *(path / PROFILES).glob(".*.tmp")):
        disk.unlink(leftover)
    for file in layout.RECORDS:
        if (path / file).exists():
            store_disk.cut(disk, path / file)


def check_vacant(path: Path) -> None:
    """Raises ValueError unless `path` is absent or a directory without anything but what a killed `create` leaves."""
    with store_disk.unwritable_is_a_mistake(path):  # a name too long, a directory above that may not be searched
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
