"""Law, injected fault: `kill -9` at any moment loses no cell, repeats none, tears no row; a resumed run is complete."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from results.store.store import Store, read_operations, read_run
from tests.support.made_up.made_up_runs import MANIFEST, SESSION, Died, Unsynced, a_run, operations, rows_of, storages


class Mortal(Unsynced):
    """A disk on which the process dies before its call number `after` (from 0), or in the middle of that call.

    After its death nothing changes the disk any more, whatever handlers still run; what it held open is closed by the
    system. part: None dies before the call; else a fraction of the bytes that a dying write still gets through.
    """

    def __init__(self, after: int | None = None, part: float | None = None) -> None:
        self.after = after
        self.part = part
        self.calls: list[str] = []
        self.held: set[int] = set()
        self.dead = False

    def _live(self, name: str) -> bool:
        """Whether the call may be made; False for the call in which the process dies."""
        if self.dead:
            raise Died
        self.calls.append(name)
        return self.after is None or len(self.calls) <= self.after

    def _die(self) -> None:
        self.dead = True
        for fd in self.held:
            os.close(fd)
        raise Died

    def _call(self, name: str) -> None:
        if not self._live(name):
            self._die()

    def open(self, path: Path, flags: int) -> int:
        self._call(f"open {path.name}")
        fd = super().open(path, flags)
        self.held.add(fd)
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self._live("write"):
            if self.part is not None:
                super().write(fd, data[: int(len(data) * self.part)])
            self._die()
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._call("fsync")

    def truncate(self, fd: int, size: int) -> None:
        self._call("truncate")
        super().truncate(fd, size)

    def close(self, fd: int) -> None:
        self._call("close")
        super().close(fd)
        self.held.discard(fd)

    def replace(self, source: Path, target: Path) -> None:
        self._call(f"replace {target.name}")
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._call("mkdir")
        super().mkdir(path)


PARTS = (None, 0.3, 0.999)
"""How much of a dying write still reaches the disk: the call is not made, cut within the rows, cut within the last."""


def write_run(path: Path, disk: Mortal, cells: str = "abc") -> None:
    """A sweep from nothing or from wherever the last one died."""
    with Store.resume(path, disk) if (path / "manifest.json").exists() else Store.create(path, MANIFEST, disk) as store:
        if not store.sessions:
            store.append_session(SESSION)
        for cell in cells:
            if cell not in store.done():
                attempt = store.next_attempt(cell)
                store.write_operations("t", operations(), storages())
                entries = store.write_recording(cell, attempt, "batch", "kineto", recording(cell, attempt))
                store.commit(a_run(cell, attempt, trace_id="t", committed=entries), rows_of(cell, attempt))


def recording(cell: str, attempt: int) -> bytes:
    return f"attempt {attempt} of {cell}".encode() * 9


def check(path: Path, cells: str) -> None:
    """Each of the cells once, with the rows and the recording of its one attempt, exactly."""
    data = read_run(path)
    assert sorted(run.cell_id for run in data.runs) == sorted(cells)
    for run in data.runs:
        file = path / f"profiles/{run.cell_id}-{run.attempt}-batch.kineto.json.gz"
        assert file.read_bytes() == recording(run.cell_id, run.attempt)
        for file, rows in rows_of(run.cell_id, run.attempt).items():
            frame = getattr(data, file.removesuffix(".csv"))
            mine = [cell == run.cell_id for cell in frame["cell_id"].tolist()]
            for column in {"attempt", "wall_s", "index", "time_s", "sm_clock_hz", "flop", "native_value"} & {*frame}:
                there = [None if v is pd.NA else v for v in itertools.compress(frame[column].tolist(), mine)]
                assert there == [getattr(row, column) for row in rows]
    assert {problem.split(": ", 1)[1].lstrip("0123456789 ") for problem in data.problems} <= {
        "a torn last line was dropped",
        "rows are not committed, left out",
    }


def intact(path: Path) -> str:
    """The cells that a reader finds whole right now; nothing before the run is one."""
    if not (path / "manifest.json").exists():
        return ""
    cells = "".join(run.cell_id for run in read_run(path).runs)
    check(path, cells)
    return cells


def calls_of_a_run(path: Path) -> list[str]:
    disk = Mortal()
    write_run(path, disk)
    return disk.calls


@pytest.mark.parametrize("part", PARTS)
def test_death_before_and_within_each_call_of_a_run(tmp_path, part):
    """Die at call k of a whole run of three cells, for every k (of those that a death can cut); read; go on to the
    end; read."""
    calls = calls_of_a_run(tmp_path / "whole")
    assert len(calls) > 60, "a session, a trace, three recordings and commits of four files with four calls each"
    moments = [k for k, call in enumerate(calls) if part is None or call == "write"]
    deaths = 0
    for k in moments:
        path = tmp_path / f"{k}"
        disk = Mortal(after=k, part=part)
        with contextlib.suppress(Died):
            write_run(path, disk)
        deaths += disk.dead
        kept = intact(path)
        assert kept == "abc"[: len(kept)], "cells are whole in the order in which they were written"
        write_run(path, Mortal())
        check(path, "abc")
        assert [run.attempt for run in read_run(path).runs][: len(kept)] == [1] * len(kept), "none was measured again"
        assert read_operations(path, "t") == (operations(), storages())
        assert not list((path / "profiles").glob(".*.tmp"))
    assert deaths == len(moments) > 15


@pytest.mark.parametrize("step", [160, pytest.param(31, marks=pytest.mark.slow)])
def test_death_while_going_on_after_a_death(tmp_path, step):
    """Two deaths in a row, within writes where they die in one: at some calls of the first run, each of the second."""
    count = len(calls_of_a_run(tmp_path / "whole"))
    for first in range(25, count, step):
        for second in range(count):
            path = tmp_path / f"{first}-{second}"
            with contextlib.suppress(Died):
                write_run(path, Mortal(after=first, part=0.5))
            kept = intact(path)
            disk = Mortal(after=second, part=0.6)
            with contextlib.suppress(Died):
                write_run(path, disk)
            assert intact(path).startswith(kept)
            write_run(path, Mortal())
            check(path, "abc")
            if not disk.dead:
                break


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from tests.support.made_up.made_up_runs import MANIFEST, SESSION, a_run, operations, rows_of, samples, storages
from results.store.store import Store
path, cells = sys.argv[1], int(sys.argv[2])
try:
    store = Store.create(path, MANIFEST)
except ValueError:
    store = Store.resume(path)
if not store.sessions:
    store.append_session(SESSION)
print("ready", flush=True)
for cell in map("c{}".format, range(cells)):
    if cell not in store.done():
        attempt = store.next_attempt(cell)
        store.write_operations(cell, operations(40), storages())
        rows = rows_of(cell, attempt) | {"samples.csv": samples(cell, attempt, 300)}
        store.commit(a_run(cell, attempt, trace_id=cell), rows)
        print(cell, flush=True)
print("end", flush=True)
"""


def run_writer(path: Path, cells: int, kill_after_s: float | None) -> list[str]:
    """The lines that a writer says before it ends, or is killed so long after it was ready."""
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    command = [sys.executable, "-c", WRITER, str(path), str(cells), *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = [process.stdout.readline().strip()]
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            process.send_signal(signal.SIGKILL)
        said += process.stdout.read().splitlines()
        errors = process.stderr.read()
    assert not errors
    assert process.returncode in (0, -signal.SIGKILL)
    return said


@pytest.mark.parametrize("times", [12, pytest.param(32, marks=pytest.mark.slow)])
def test_kills_at_random_moments(tmp_path, times):
    """SIGKILL to a process that does nothing but commit, so many times; what it said was kept is kept."""
    path = tmp_path / "run"
    moments = random.Random(20260102)
    promised: set[str] = set()
    kept_before: dict[str, int] = {}
    kills = 0
    for _ in range(times):
        said = run_writer(path, 2000, moments.uniform(0.0, 0.12))
        kills += "end" not in said
        promised |= {line for line in said if line.startswith("c")}
        data = read_run(path)
        kept = {run.cell_id: run.attempt for run in data.runs}
        assert promised <= set(kept), "a cell that was reported as kept is lost"
        assert kept.items() >= kept_before.items(), "a cell that was kept was measured again"
        assert len(data.all_runs) == len(kept)
        sizes = data.samples.groupby("cell_id").size()
        assert sizes.to_dict() == dict.fromkeys(kept, 300)
        kept_before = kept
    assert kills >= times - 2
    assert 0 < len(kept_before) < 2000, "the kills fell into the writing, not before or after it"
    cells = [f"c{i}" for i in range(len(kept_before) + 3)]
    assert run_writer(path, len(cells), None)[-1] == "end"
    data = read_run(path)
    assert sorted(run.cell_id for run in data.runs) == sorted(cells)
    assert {run.cell_id: run.attempt for run in data.runs}.items() >= kept_before.items()
    assert not list(path.rglob("*.tmp"))
