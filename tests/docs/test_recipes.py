"""CONTRIBUTING's recipes done: a dummy of each is added to a copy of the tree, and the project's own commands take it.

The copy has the packages and no results; what is added is what the recipe says and nothing else. Recipes that import
torch in the copy are marked slow.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("runners", "reports", "cleaning", "measure", "workloads", "analysis", "results")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages, to be changed."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "published", "runs")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    return tmp_path


def run(tree: Path, *command: str, code: int = 0) -> str:
    """What `python -m …` prints in the copy."""
    ended = subprocess.run([sys.executable, "-m", *command], cwd=tree, capture_output=True, text=True, timeout=300)
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def insert(path: Path, before: str, line: str) -> None:
    """Put a line before the first that begins so."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) >= 1, f"{path}: {before}"
    path.write_text(text.replace(before, f"{line}\n{before}", 1), encoding="utf-8")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


COMMAND = '''"""`python -m runners.dummy`: how long is a word?"""

from __future__ import annotations

from collections.abc import Sequence

from runners.cli.arguments import Parser, add_format
from runners.cli.exits import Mistake, guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = Parser(prog="python -m runners.dummy", description="How long is a word?")
    parser.add_argument("word")
    add_format(parser)
    options = parser.parse_args(arguments)
    return guarded(lambda: _run(options), False)


def _run(options: object) -> int:
    word = options.word  # type: ignore[attr-defined]
    if not word:
        raise Mistake("expected a word, got none")
    print(len(word))
    return 0
'''


def test_add_a_command(copy: Path) -> None:
    main = (copy / "runners/ceiling/__main__.py").read_text(encoding="utf-8").replace("ceiling", "dummy")
    write(copy / "runners/dummy/__init__.py", '"""How long is a word?"""\n')
    write(copy / "runners/dummy/__main__.py", main)
    write(copy / "runners/dummy/command.py", COMMAND)
    insert(copy / "runners/__main__.py", '    "doctor":', '    "dummy": "How long is a word?",')
    assert "dummy         How long is a word?" in run(copy, "runners")
    assert run(copy, "runners.dummy", "abc", "--format", "csv") == "3\n"
    assert "--format" in run(copy, "runners.dummy", "--help")
    run(copy, "runners.dummy", "", code=2)


def test_add_a_device(copy: Path) -> None:
    path = copy / "analysis/devices/peaks.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    like = next(row for row in rows if row["name"] == "NVIDIA H100 80GB HBM3")
    with path.open("a", encoding="utf-8", newline="") as file:
        added = {**like, "name": "Dummy 9000", "names": "Dummy 9000|Dummy 9000 PCIe", "fp32_flop_per_s": "12.5e12"}
        csv.DictWriter(file, list(like), lineterminator="\n").writerow(added)
    for name in ("Dummy 9000", "Dummy 9000 PCIe"):
        shown = run(copy, "runners.doctor", "--peaks", name)
        assert "Dummy 9000" in shown
        assert "12.5" in shown


COUNTER = '''"""Counts 7 multiply-adds, whatever the model."""

from __future__ import annotations

from typing import Any

import torch

from results.records import FlopCount


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """One row: the forward pass."""
    return [
        FlopCount(
            counter="dummy",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_value=7,
            native_unit="mac",
            flop=14,
        )
    ]
'''

RULE = '''"""The dummy's rule: it counts nothing that it could name."""

from __future__ import annotations

from cleaning.accounts.vocabulary.items import FUSED_NOT_SEEN, Counted, missed_by
from results.records.calls import Recording

UNIT = "mac"


def count(recording: Recording, phase: str) -> Counted:
    """No item."""
    return [], missed_by(FUSED_NOT_SEEN, "operator_without_rule")
'''


@pytest.mark.slow
def test_add_a_counter(copy: Path) -> None:
    write(copy / "measure/counters/adapters/dummy.py", COUNTER)
    line = '    "dummy": ("measure.counters.adapters.dummy:count", ""),'
    insert(copy / "measure/counters/harness/registry.py", '    "fvcore":', line)
    write(copy / "cleaning/accounts/rules/dummy.py", RULE)
    registered = '    "dummy": "cleaning.accounts.rules.dummy",'
    insert(copy / "cleaning/accounts/account/registry.py", '    "fvcore":', registered)
    counted = run(
        copy, "runners.count", "synthetic_matmul", "--counters", "exact,dummy", "--batch-size", "1", "--format", "csv"
    )
    rows = list(csv.DictReader(counted.splitlines()))
    (ours,) = (row for row in rows if row["counter"] == "dummy" and row["phase"] == "forward")
    assert ours["native_value"] == "7"
    assert float(ours["flop_ratio"]) == 14 / (2 * 4 * 1024 * 1024)  # of 4 layers of 1024 × 1024, one row


@pytest.mark.slow
def test_add_a_fault(copy: Path) -> None:
    path = copy / "measure/counters/faults/reproductions/torchinfo.py"
    made = 'def dummy() -> int:\n    """A fault that is made up.\n\n    1 + 1."""\n    return 3\n\n'
    insert(path, "FAULTS = (", made + "")
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("FAULTS = (\n", 'FAULTS = (\n    Fault(dummy, "wrong count", "formula", 3, 2),\n', 1),
        encoding="utf-8",
    )
    found: Any = json.loads(run(copy, "runners.faults", "--counters", "torchinfo", "--format", "json"))
    rows = found["faults"] if isinstance(found, dict) else found
    (mine,) = (row for row in rows if row["fault"] == "dummy")
    assert (mine["status"], mine["found"], mine["right"]) == ("there", 3, 2)


@pytest.mark.slow
def test_add_a_workload(copy: Path) -> None:
    path = copy / "workloads/catalogue/catalogue.py"
    text = path.read_text(encoding="utf-8")
    start = text.index('    "gpt": _entry(')
    entry = text[start : text.index("\n    ),\n", start) + len("\n    ),\n")]
    path.write_text(
        text[:start] + entry.replace('"gpt": _entry(', '"dummy_gpt": _entry(', 1) + text[start:], encoding="utf-8"
    )
    insert(
        copy / "workloads/catamount/sequences.py", '    "gpt": Family(gpt.GPT),', '    "dummy_gpt": Family(gpt.GPT),'
    )
    arguments = ("--batch-size", "1", "--hyper", "d_model=16,layers=1,heads=2,vocab=32,seq=8", "--format", "json")
    theirs, mine = (json.loads(run(copy, "runners.footprint", name, *arguments)) for name in ("gpt", "dummy_gpt"))
    assert {**mine, "model": "gpt"} == theirs


FIGURE = '''"""A bar for each row of utilization.csv."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure


def bars(fractions: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure."""
    figure = Figure()
    figure.subplots().barh(range(len(fractions)), fractions["utilization_ratio"])
    return {"dummy_bars": figure}
'''


@pytest.mark.slow
def test_add_a_figure(copy: Path) -> None:
    write(copy / "reports/sweep/figures/dummy.py", FIGURE)
    gallery = copy / "reports/sweep/figures/gallery.py"
    insert(gallery, "from reports.sweep.figures import methods", "from reports.sweep.figures import dummy")
    insert(gallery, "    counts = _drawable(", "    drawn |= dummy.bars(fractions)")
    directory = copy / "run"
    shutil.copytree(ROOT / "results/published/amd-epyc-2-cores-2026-11-20", directory)
    run(copy, "runners.report", str(directory))
    assert (directory / "figures/dummy_bars.png").read_bytes().startswith(b"\x89PNG")
    assert "Dummy bars" in (directory / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_add_a_column(copy: Path) -> None:
    for name in ("docs/schema.md", "tests/docs/test_schema_doc.py"):
        write(copy / name, (ROOT / name).read_text(encoding="utf-8"))
    insert(copy / "results/records/cell.py", "\n\ndef identity(", '    dummy: str = ""')
    check = ("pytest", "-q", "-p", "no:cacheprovider", "tests/docs/test_schema_doc.py")
    run(copy, *check, code=1)
    text = (copy / "docs/schema.md").read_text(encoding="utf-8")
    start = text.index("\n## `sittings.csv`")
    end = text.index("\n\n", text.index("| `preflight` |", start))
    row = "| `dummy` | text | – | a word | never |"
    write(copy / "docs/schema.md", f"{text[:end]}\n{row}{text[end:]}")
    run(copy, *check)
    old = ROOT / "results/published/amd-epyc-2-cores-2026-11-20"
    code = f"from results.store.store import read_run; print([s.dummy for s in read_run({str(old)!r}).sittings])"
    ended = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, timeout=300)
    assert (ended.stdout, ended.stderr) == ("['']\n", "")
