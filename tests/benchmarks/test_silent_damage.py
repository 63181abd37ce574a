"""Random edits over every file of a small run: none changes a rebuilt number with nothing said."""

from __future__ import annotations

import csv
import shutil

import pytest

from benchmarks.silent_damage import EDITS, PUBLISHED, every_edit, outcome, random_edits, search, small_run
from tests.support.made_up.seals import older


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(PUBLISHED, tmp_path_factory.mktemp("silent") / "run", cells=1)


def test_no_edit_is_silent(run):
    silent, counts = search(run, random_edits(run, 120, seed=1))
    assert silent == []
    assert sum(counts.values()) == 120
    assert {name.partition(":")[0] for name in counts} == set(EDITS)
    assert sum(count for name, count in counts.items() if name.endswith("told")) > 80


def test_no_cut_and_no_bit_is_silent(run):
    """Of each cut and each bit of every file, every 4001st: prime to the nine of a byte, so all kinds occur."""
    silent, counts = search(run, every_edit(run, 4001))
    assert silent == []
    assert {name.partition(":")[0] for name in counts} == {"cut", "bit"}
    files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
    assert sum(counts.values()) == -(-9 * sum(path.stat().st_size for path in files) // 4001)


def test_the_search_finds_what_is_not_sealed(run, tmp_path):
    """Of the same run as version 3 has it, a digit of a ceiling changes numbers and nothing is told but that it is
    unsealed, which it was before."""
    path = older(shutil.copytree(run, tmp_path / "run"))
    numbers, problems = outcome(path)
    files = ("manifest.json", "runs.csv", "sittings.csv", "ceilings.csv")
    assert problems == tuple(f"{file} is unsealed" for file in files)
    with (path / "ceilings.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["flop_per_s"] = row["flop_per_s"] and f"9{row['flop_per_s']}"
    with (path / "ceilings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    found = outcome(path)
    assert found[0] != numbers
    assert found[1] == problems
