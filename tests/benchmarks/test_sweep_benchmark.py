"""The sweep benchmark's own arithmetic: what is inside a window, and that the rest adds up to the wall time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sweep import (
    BETWEEN_BLOCKS,
    DONE,
    REPORT,
    START,
    observed,
    stages,
)
from results.records.counts import FlopCount
from results.records.samples import Sample
from results.store.store import read_run
from tests.support.made_up import made_up_runs


def sample(index: int, part: str, wall_s: float, cell: str = "c1", **more: object) -> Sample:
    values = {"cell_id": cell, "attempt": 1, "index": index, "part": part, "steps": 2, "start_s": 10.0 + index}
    return Sample(**{**values, "wall_s": wall_s, **more})


BLOCKS = [
    sample(0, "warmup", 0.5),
    sample(1, "measure", 1.0),
    sample(2, "measure", 2.0),
    sample(3, "phase", 0.1, phase="forward", device_s=0.4),  # a GPU: the host only issued it
    sample(4, "measure", 0.25, work="one"),
    sample(5, "profiled", 0.75, work="one"),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One cell of 9 s after a session's row, with BLOCKS; a second one, of 3 s and the same counts, that failed."""
    with made_up_runs.new_store(tmp_path / "run") as store:  # its session began at 03:04:05
        took = {"fvcore": 1.5, "ptflops": 0.25, "other": None}
        counts = [
            made_up_runs.flop_count("c1", counter=counter, duration_s=duration_s)
            for counter, duration_s in took.items()
        ]
        first = made_up_runs.a_run(
            "c1", started_at="2026-01-02T03:04:06Z", duration_s=9.0, window_start_s=11.0, window_end_s=14.5
        )
        store.commit(first, {"samples.csv": BLOCKS, "flop_counts.csv": counts})
        second = made_up_runs.a_run("c2", status="crashed", started_at="2026-01-02T03:04:15Z", duration_s=3.0)
        again = [FlopCount(**{**vars(count), "cell_id": "c2"}) for count in counts]
        store.commit(second, {"flop_counts.csv": again})
    return tmp_path / "run"


def test_stages_last_until_the_next_and_add_up_to_all_the_time():
    marks = [(3.0, "counting"), (5.0, "tracing"), (6.0, "measuring, then one, batch"), (10.0, DONE)]
    marks += [(10.5, "counting"), (11.0, "measuring"), (14.0, DONE)]
    found = stages(marks, 1.0, 20.0)
    assert found == pytest.approx(
        {START: 2.0, "counting": 2.5, "tracing": 1.0, "measuring": 7.0, DONE: 0.5, REPORT: 6.0}
    )
    assert sum(found.values()) == pytest.approx(19.0)


def test_a_watched_sweep_is_accounted_for_to_the_last_second(run: Path):
    account = observed([(2.0, "counting"), (3.0, "measuring"), (9.0, DONE)], 0.0, 10.0, read_run(run))
    assert account.ratio == pytest.approx(10.0 / 4.9)
    assert account.outside[BETWEEN_BLOCKS] == pytest.approx(6.0 - 4.9)
    assert account.inside_s + sum(account.outside.values()) == pytest.approx(account.wall_s)
