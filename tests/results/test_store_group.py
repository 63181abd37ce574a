"""Attempts that are committed together: the files that single commits leave, fewer waits, each whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.store.store import Store, read_run
from tests.support.made_up.made_up_runs import Died, Mortal, Unsynced, a_run, new_store, rows_of, samples

CELLS = ("a" * 16, "b" * 16, "c" * 16)


class Waits(Unsynced):
    """Counts what would be waited for."""

    def __init__(self) -> None:
        self.count = 0

    def fsync(self, fd: int) -> None:
        self.count += 1


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.glob("*.csv")}


def commit_group(store: Store) -> None:
    store.commit_group([(a_run(cell), rows_of(cell)) for cell in CELLS])


def test_a_group_leaves_what_single_commits_leave(tmp_path: Path) -> None:
    with new_store(tmp_path / "single") as single:
        for cell in CELLS:
            single.commit(a_run(cell), rows_of(cell))
    with new_store(tmp_path / "group") as group:
        commit_group(group)
        assert group.done() == dict.fromkeys(CELLS, "ok")
    assert contents(tmp_path / "group") == contents(tmp_path / "single")
    assert read_run(tmp_path / "group").problems == []


def test_a_group_waits_once_for_each_file(tmp_path: Path) -> None:
    disk = Waits()
    with new_store(tmp_path / "run", disk) as store:
        store.commit(a_run("0" * 16), rows_of("0" * 16))  # which makes the files
        before = disk.count
        commit_group(store)
    assert disk.count - before == 4  # samples, telemetry, counts; then the runs


def test_cells_of_a_group_may_have_different_files(tmp_path: Path) -> None:
    with new_store(tmp_path / "run") as store:
        few = {"samples.csv": samples(CELLS[1])}
        store.commit_group([(a_run(CELLS[0], status="crashed"), {}), (a_run(CELLS[1]), few), (a_run(CELLS[2]), {})])
        assert store.done() == {CELLS[0]: "crashed", CELLS[1]: "ok", CELLS[2]: "ok"}
    data = read_run(tmp_path / "run")
    assert data.problems == []
    assert set(data.samples["cell_id"]) == {CELLS[1]}


def test_a_group_with_one_that_may_not_be_kept_writes_nothing(tmp_path: Path) -> None:
    with new_store(tmp_path / "run") as store:
        before = contents(tmp_path / "run")
        wrong = {"samples.csv": samples("another")}
        with pytest.raises(ValueError, match="does not belong to attempt"):
            store.commit_group([(a_run(CELLS[0]), rows_of(CELLS[0])), (a_run(CELLS[1]), wrong)])
        with pytest.raises(ValueError, match="expected attempts at different cells"):
            store.commit_group([(a_run(CELLS[0]), {}), (a_run(CELLS[0], attempt=2), {})])
        assert contents(tmp_path / "run") == before
        assert store.next_attempt(CELLS[0]) == 1


@pytest.mark.parametrize("part", [None, 0.4])
def test_a_kill_at_any_call_leaves_whole_attempts(tmp_path: Path, part: float | None) -> None:
    """Every call of the group, and in the middle of each: what is committed is intact, resuming measures the rest."""
    counted = Mortal()
    with new_store(tmp_path / "count", counted) as store:
        before = len(counted.calls)
        commit_group(store)
        last = len(counted.calls)
    kept = set()
    for after in range(before, last):
        path, disk = tmp_path / f"run-{after}", Mortal(after, part)
        with pytest.raises(Died), new_store(path, disk) as store:
            commit_group(store)
        with Store.resume(path, Unsynced()) as again:
            done = again.done()
            again.commit_group(
                [(a_run(c, again.next_attempt(c)), rows_of(c, again.next_attempt(c))) for c in CELLS if c not in done]
            )
        data = read_run(path)
        assert {run.cell_id for run in data.runs} == set(CELLS)
        assert len({run.cell_id for run in data.all_runs}) == len(data.all_runs)
        assert all("not committed" in problem for problem in data.problems)
        kept.add(len(done))
    assert 0 in kept
