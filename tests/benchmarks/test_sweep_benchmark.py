"""The sweep benchmark's own arithmetic: what is inside a window, and that the rest adds up to the wall time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sweep import (
    BETWEEN_BLOCKS,
    DONE,
    REPORT,
    START,
    Account,
    inside,
    lines,
    main,
    observed,
    recorded,
    stages,
)
from results.records.counts import FlopCount
from results.records.samples import Sample
from results.store.store import Store, read_run
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
INSIDE = {"warmup": 0.5, "measure": 3.25, "phase": 0.4, "profiled": 0.75}  # 4.9 s together


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


def test_inside_is_every_timed_block_by_part():
    assert inside(BLOCKS) == pytest.approx(INSIDE)


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


def test_a_run_that_is_there_is_told_by_its_files(run: Path):
    account = recorded(read_run(run))
    assert account.wall_s == pytest.approx(13.0)  # 03:04:05 to 03:04:15 + 3 s
    assert account.inside == pytest.approx(INSIDE)
    assert account.outside["counting, by the counters themselves"] == pytest.approx(
        1.75
    )  # once, though two cells say so
    assert account.outside[DONE] == pytest.approx(1.0)  # 13 - 9 - 3
    assert account.outside["between the first and last measured block"] == pytest.approx(0.5)  # 3.5 - (1 + 2)
    assert account.inside_s + sum(account.outside.values()) == pytest.approx(account.wall_s)


def test_what_is_said_names_the_ratio_the_goal_and_every_part():
    told = lines(Account(12.0, 10, {"measure": 6.0, "warmup": 2.0}, {"counting": 1.0, "report": 3.0}))
    assert told[0] == "wall time / time inside measured windows: 1.50; goal at most 1.5: met"
    assert [line.split()[:2] for line in told[2:]] == [
        ["inside", "measure"],
        ["inside", "warmup"],
        ["outside", "report"],
        ["outside", "counting"],
    ]
    assert told[2].endswith("6.0 s   50.0 %")
    assert "missed" in lines(Account(12.2, 10, {"measure": 8.0}, {}))[0]


def test_a_run_without_blocks_and_a_directory_without_a_run_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with Store.create(tmp_path / "run", made_up_runs.MANIFEST, made_up_runs.Unsynced()) as store:
        store.append_sitting(made_up_runs.SITTING)
        store.commit(made_up_runs.a_run("c1", started_at="2026-01-02T03:04:06Z", duration_s=1.0), {})
    for path, said in ((tmp_path / "run", "without any"), (tmp_path, "manifest.json")):
        with pytest.raises(SystemExit) as left:
            main(["--run", str(path)])
        assert left.value.code == 2
        assert said in capsys.readouterr().err.splitlines()[-1]
