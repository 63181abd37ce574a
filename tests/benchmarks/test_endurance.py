"""Short forms of what `benchmarks.endurance` does, and that each of its checks can fail."""

from __future__ import annotations

import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest

from benchmarks.endurance import day, kills, load
from benchmarks.silent_damage import PUBLISHED, small_run
from results.store.store import read_run


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return small_run(PUBLISHED, tmp_path_factory.mktemp("endurance") / "run", cells=2)


@pytest.fixture
def run(source, tmp_path):
    return shutil.copytree(source, tmp_path / "run")


def test_exact_numbers_are_those_of_every_cell_counter_and_table(run):
    found = kills.exact(run)
    data = read_run(run)
    assert {name for name in found if name.startswith("cell ")} == {f"cell {each.cell_id}" for each in data.runs}
    assert len(found["the counters' rows"]) == len(data.flop_counts)
    assert kills.differences(run, found) == []


@pytest.mark.parametrize("damage", ["cell", "counts", "table"])
def test_a_number_that_is_lost_is_a_difference(run, damage):
    before = kills.exact(run)
    if damage == "table":
        next((run / "operations").glob("*.csv.gz")).unlink()
    else:
        file = run / {"cell": "runs.csv", "counts": "flop_counts.csv"}[damage]
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert kills.differences(run, before)


def test_a_cell_that_is_lost_or_measured_again_is_a_problem(run):
    problems: list[str] = []
    first = kills._kept(run, {}, problems)
    assert problems == []
    kills._kept(run, {**first, "gone": 1}, problems)
    assert problems == ["gone is lost"]
    problems.clear()
    cell = next(iter(first), "")
    if cell:
        kills._kept(run, {cell: first[cell] + 1}, problems)
        assert problems == [f"{cell} was measured again"]


def test_finished_rounds_are_not_played_again(tmp_path):
    done = kills.Round(0, {"parent": 3, "trace": 1}, 4, 9.5, [])
    (tmp_path / "state").write_text(json.dumps(asdict(done)) + "\n")
    assert kills._earlier(tmp_path / "state") == [done]
    assert kills._earlier(tmp_path / "none") == kills._earlier(None) == []


@pytest.mark.survival
def test_fifty_random_kills_of_each_process_change_no_exact_number():
    """Two series beside each other, which mostly wait; `python -m benchmarks.endurance.kills` does a thousand."""
    with ThreadPoolExecutor(2) as pool:
        series = pool.map(lambda seed: kills.rounds(25, 25, seed, state=None, say=print), (3, 4))
        played = [each for one in series for each in one]
    assert [each.problems for each in played] == [[]] * len(played)
    assert sum(sum(each.kills.values()) for each in played) >= 50


def test_half_an_hour_of_cells_leaves_no_file_open(tmp_path):
    moments = day.live(0.5, tmp_path)
    assert moments[-1].cells == 180
    assert day.is_flat(moments), moments


@pytest.mark.parametrize(
    ("grown", "files", "flat"), [(0, 0, True), (4_900_000, 0, True), (5_100_000, 0, False), (0, 1, False)]
)
def test_what_grows_is_not_flat(grown, files, flat):
    """After 2,000 more cells: 4 MB of noise and 500 bytes each, so that 5 MB are the most."""
    start = day.Moment(1_000, 50_000_000, 9)
    middle = dataclasses.replace(start, cells=2_000, open_files=9 + files)
    assert day.is_flat([start, middle, day.Moment(3_000, 50_000_000 + grown, 8)]) is flat


def test_a_made_up_run_for_load_is_whole(tmp_path):
    load.write(tmp_path / "run", 3, 4)
    data = read_run(tmp_path / "run")
    assert data.problems == []
    assert (len(data.runs), len(data.samples), len(data.flop_counts)) == (3, 12, 6)
    assert {each.model for each in load.cells(401)} == {"net000", "net001", "net002"}
    assert len({each.cell_id for each in load.cells(401)}) == 401
