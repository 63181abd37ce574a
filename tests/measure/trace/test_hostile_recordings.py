"""Injected fault: recordings made to take time or memory without end, or with wrong sizes, are refused in time."""

import gzip
import itertools
import os
import sqlite3
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from measure.trace import nsys
from measure.trace.read import read
from tests.measure.trace.made_up_dicts import FUNCTIONAL, line
from tests.measure.trace.made_up_files import cuda_trace, event, step, write


def refused(path: Path, said: str) -> None:
    with pytest.raises(ValueError, match=said) as fault:
        read(path)
    assert str(fault.value).startswith(str(path))
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 700


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"


@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_view_is_not_looked_at(tmp_path: Path, packed: bool) -> None:
    path = step().write(tmp_path / "report.sqlite", without=["NVTX_EVENTS"])
    with sqlite3.connect(path) as made:
        made.execute(f"CREATE VIEW NVTX_EVENTS AS {ENDLESS}")
    made.close()
    if packed:
        (tmp_path / "report.sqlite.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "report.sqlite.gz"
    start_s = time.monotonic()
    refused(path, "NVTX_EVENTS is not a plain table")
    assert time.monotonic() - start_s < 10


def test_a_statement_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second at each look: the limit of ten is reached within ten looks."""
    path = step().write(tmp_path / "report.sqlite")
    clock = SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr(nsys, "time", clock)
    monkeypatch.setattr(nsys, "STEPS", 1)
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "database_seconds=10")
    refused(path, "it takes too long to read: more than 10 .*database_seconds=N")


def bomb(path: Path, begin: bytes, size: int = 100_000_000) -> Path:
    path.write_bytes(gzip.compress(begin + bytes(size)))
    assert path.stat().st_size < 300_000
    return path


@pytest.mark.parametrize(
    ("begin", "limit"),
    [
        (b"SQLite format 3\0", "memory_bytes"),
        (b'{"traceEvents": [ ', "event_bytes"),
        (b"{'kShortName': '", "line_bytes"),
    ],
    ids=["nsys", "kineto", "pyprof"],
)
def test_a_bomb_takes_no_memory(tmp_path: Path, begin: bytes, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(tmp_path / "bomb.gz", begin)
    monkeypatch.setenv("FLOPLEDGER_LIMITS", f"{limit}=1e6")
    tracemalloc.start()
    try:
        refused(path, f"{limit}=N raises the limit")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", ["x" * 5000, (2, -4), (2.5,)])
def test_a_marker_whose_shape_is_none_is_refused(tmp_path: Path, shape: Any) -> None:
    argument = {"name": "", "type": "tensor", "shape": shape, "dtype": "float32"}
    mark = str({"mod": FUNCTIONAL, "op": "conv2d", "args": [argument, argument]})
    path = tmp_path / "net.dict"
    path.write_text(line("conv", [1], "fprop", mark))
    refused(path, "expected a shape of sizes from 0 on")


@pytest.mark.parametrize("name", ["fifo", "zero"])
def test_a_pipe_and_a_device_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    refused(path, "is not a regular file")


@pytest.mark.parametrize(
    "dims", ["x" * 13_000, [[2, 3], "x" * 13_000], [[2, -4], [4, 3]], [[2.5]], [[True]], [[2**70]]]
)
def test_what_is_no_size_is_refused(tmp_path: Path, dims: Any) -> None:
    spoilt = event("cpu_op", "aten::mm", 1, 2, **{"Input Dims": dims})
    refused(write(tmp_path / "t.json", [*cuda_trace(), spoilt]), "expected sizes")
