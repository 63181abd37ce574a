"""Made-up runs for tests of what is kept: small records with known values, and disks that fail or die."""

import errno
import os
from pathlib import Path

from results.records.cell import Ceiling, Run, Sample, SessionRow, Telemetry
from results.records.counts import FlopCount, Operation, Storage
from results.records.rows import Record
from results.store.disk import Disk
from results.store.manifest import Manifest
from results.store.store import Store

MANIFEST = Manifest(name="made-up", created_at="2026-01-02T03:04:05Z", commands=("sweep --out here",))
SESSION = SessionRow(
    session="s1",
    started_at="2026-01-02T03:04:05Z",
    host="host",
    device="cpu",
    device_name="A CPU",
    driver="550.54.15",
    torch_version="2.15.0",
    peak_row="a cpu",
)


def a_run(cell_id: str, attempt: int = 1, status: str = "ok", **more: object) -> Run:
    parameters = {"model": "resnet18", "batch_size": 8, "device": "cpu", "session": "s1"}
    return Run(**{**parameters, "cell_id": cell_id, "attempt": attempt, "status": status, **more})


def samples(cell_id: str, attempt: int = 1, count: int = 3) -> list[Sample]:
    """Blocks whose times tell cell, attempt and index, so that no row can stand for another."""
    tag = sum(cell_id.encode()) + attempt / 8
    return [
        Sample(
            cell_id=cell_id, attempt=attempt, index=i, part="measure", steps=10, start_s=float(i), wall_s=tag + i / 1024
        )
        for i in range(count)
    ]


def telemetry(cell_id: str, attempt: int = 1, count: int = 2) -> list[Telemetry]:
    return [
        Telemetry(
            cell_id=cell_id, attempt=attempt, time_s=i / 4, sm_clock_hz=1_410_000_000 + i, event_reasons=("a", "b")
        )
        for i in range(count)
    ]


def flop_count(cell_id: str, attempt: int = 1, **more: object) -> FlopCount:
    count = FlopCount(
        cell_id=cell_id, attempt=attempt, counter="fvcore", workload="resnet18", batch_size=8, phase="forward"
    )
    return FlopCount(**{**vars(count), **more})


def ceiling(rate: float) -> Ceiling:
    return Ceiling(
        session="s1", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="1x1", flop_per_s=rate
    )


def rows_of(cell_id: str, attempt: int = 1) -> dict[str, list[Record]]:
    return {
        "samples.csv": [*samples(cell_id, attempt)],
        "telemetry.csv": [*telemetry(cell_id, attempt)],
        "flop_counts.csv": [flop_count(cell_id, attempt, flop=2**53 + 1, native_value=2**52 + 1, native_unit="mac")],
    }


def operations(count: int = 2) -> list[Operation]:
    return [
        Operation(
            index=i,
            name="aten.convolution",
            kind="convolution",
            phase="forward",
            module='layer "1", first',
            sequence_nr=None,
            forward_index=None,
            input_names=("input", "weight"),
            input_shapes=((8, 3, 224, 224), (64, 3, 7, 7)),
            input_dtypes=("float32", "float32"),
            output_shapes=((8, 64, 112, 112),),
            output_dtypes=("float32",),
            attributes={"stride": [2, 2], "groups": 1},
            reads=(0, 1),
            writes=(2 + i,),
        )
        for i in range(count)
    ]


def storages() -> list[Storage]:
    return [
        Storage(id=0, nbytes=8 * 3 * 224 * 224 * 4, role="input", born_index=-1, died_index=None),
        Storage(id=1, nbytes="37632*b", role="weight", born_index=-1, died_index=None),
    ]


def new_store(path: Path, disk: Disk | None = None) -> Store:
    """A created run with its one session."""
    store = Store.create(path, MANIFEST, disk or Unsynced())
    store.append_session(SESSION)
    return store


class Unsynced(Disk):
    """A disk whose fsync does nothing, for tests of order and content only."""

    def fsync(self, fd: int) -> None:
        pass


class Died(BaseException):
    """The process is gone: no handler of an Exception may see this."""


class Failing(Unsynced):
    """A disk on which chosen calls fail with `code` once it is `broken`; a failing write still takes `part` bytes."""

    def __init__(self, code: int = errno.ENOSPC, calls: tuple[str, ...] = ("write",), part: int = 0) -> None:
        self.code = code
        self.failing = calls
        self.part = part
        self.broken = False
        self.spare = 0  # calls of the chosen kinds that still succeed
        self._partly = False

    def _try(self, name: str) -> None:
        if self.broken and name in self.failing:
            if self.spare == 0:
                raise OSError(self.code, os.strerror(self.code))
            self.spare -= 1

    def open(self, path: Path, flags: int) -> int:
        self._try("open")
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.broken and "write" in self.failing and self.spare == 0 and self.part and not self._partly:
            self._partly = True  # as a disk that fills up: the first write is short, the next one fails
            return super().write(fd, data[: self.part])
        self._try("write")
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._try("fsync")

    def truncate(self, fd: int, size: int) -> None:
        self._try("truncate")
        super().truncate(fd, size)

    def replace(self, source: Path, target: Path) -> None:
        self._try("replace")
        super().replace(source, target)

    def mkdir(self, path: Path) -> None:
        self._try("mkdir")
        super().mkdir(path)


def run_of(path: Path, cells: tuple[str, ...] = ("a", "b")) -> Path:
    """A run with these cells, one attempt each."""
    with new_store(path) as store:
        for cell in cells:
            store.commit(a_run(cell), rows_of(cell))
    return path
