"""The blocks of docs/schema.md that read a run's tables with pandas, pasted, on a published run."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from cleaning.reconcile.run import build
from results.store.reading import read_run
from results.store.store import read_operations, read_profile
from runners.report.derived import derived_tables

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "results" / "published" / "amd-epyc-2-cores-2026-11-29"
TEXT = (ROOT / "docs" / "schema.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
HERE = "results/runs/NAME"
MODEL, BATCH = "resnet18", "4"
WANTED = {"headline.csv", "utilization.csv"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables of a published run where the blocks look for a run's."""
    made = tmp_path_factory.mktemp("blocks")
    run = made / HERE
    run.mkdir(parents=True)
    data = read_run(PUBLISHED)
    built = build(data, lambda trace_id: read_operations(PUBLISHED, trace_id)[0], partial(read_profile, PUBLISHED))
    tables = dict(derived_tables(built))
    for name in WANTED & set(tables):
        (run / name).write_bytes(tables[name])
    return made


def said_by(block: str, folder: Path) -> str:
    environ = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-c", block],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_there_are_blocks_for_both_files() -> None:
    for name in ("headline", "utilization"):
        assert any(f"{HERE}/{name}.csv" in block for block in BLOCKS)


def test_the_pivot_selects_or_raises_on_a_run_with_layouts_precisions_and_repeats() -> None:
    """13 models at 3 batch sizes, 2 precisions and 2 layouts: 156 cells, 26 of them repeated."""
    cells = pd.read_csv(PUBLISHED.with_name("amd-epyc-2-cores-2026-11-28-third") / "headline.csv")
    asked = {"columns": "batch_size", "values": "utilization_ratio"}
    assert (
        'cells.pivot(index=["model", "precision", "layout"], columns="batch_size", values="utilization_ratio")' in TEXT
    )
    table = cells.pivot(index=["model", "precision", "layout"], **asked)
    assert sorted(table.stack()) == sorted(cells["utilization_ratio"])
    assert len(cells) == 13 * 3 * 2 * 2
    with pytest.raises(ValueError, match="duplicate"):
        cells.pivot(index=["model", "precision"], **asked)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_gives_the_numbers_of_the_terminals_table(number: int, folder: Path) -> None:
    """Each prints the utilization of one cell as headline.csv has it, or draws a picture."""
    block = BLOCKS[number]
    said = said_by(block, folder)
    if "savefig" in block:
        assert (folder / "utilization.png").read_bytes().startswith(b"\x89PNG")
        return
    with (folder / HERE / "headline.csv").open(newline="") as file:
        (cell,) = [row for row in csv.DictReader(file) if (row["model"], row["batch_size"]) == (MODEL, BATCH)]
    lines = [line for line in said.splitlines() if re.search(rf"^{MODEL}\b", line)]
    numbers = [float(word) for word in re.findall(r"\d\.\d+", lines[0])]
    assert min(abs(found - float(cell["utilization_ratio"])) for found in numbers) < 1e-6
