"""CONTRIBUTING's recipes done: a dummy of each is added to a copy of the tree, and the project's own commands take it.

The copy has the packages and no results; what is added is what the recipe says and nothing else. Where a recipe is
checked by tests of the project, these run in the copy, and are red where a part of the recipe is left out or wrong.
Recipes that import torch in the copy are marked slow.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.project.compute.published_runs import observations

ROOT = Path(__file__).parents[2]
PACKAGES = ("runners", "reports", "cleaning", "measure", "workloads", "analysis", "results")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages, to be changed."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "published", "runs")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    return tmp_path


@pytest.fixture
def copy_with_tests(copy: Path) -> Path:
    """The packages and their tests."""
    for name in ("tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    return copy


def run(tree: Path, *command: str, code: int = 0) -> str:
    """What `python -m …` prints in the copy."""
    ended = subprocess.run([sys.executable, "-m", *command], cwd=tree, capture_output=True, text=True, timeout=300)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def failing(tree: Path, file: str, *selected: str) -> set[str]:
    """Names of the copy's tests that fail, of those whose name has one of these words."""
    expression = " or ".join(selected)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", file]
    command += ["-k", expression] if expression else []
    ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600)
    assert " passed" in ended.stdout or " failed" in ended.stdout, ended.stdout + ended.stderr
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)", ended.stdout, re.MULTILINE))
    assert (ended.returncode == 0) == (not failed), ended.stdout + ended.stderr
    return failed


def insert(path: Path, before: str, line: str) -> None:
    """Put a line before the first that begins so."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) >= 1, f"{path}: {before}"
    path.write_text(text.replace(before, f"{line}\n{before}", 1), encoding="utf-8")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path}: {old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


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
from results.records import CallRecording

UNIT = "mac"


def count(recording: CallRecording, phase: str) -> Counted:
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
def test_add_a_fault_of_a_counter(copy: Path) -> None:
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


VENDOR = '''"""A made-up vendor's devices: 40 W each."""

from __future__ import annotations

import time
from typing import Any, Self

from analysis.devices import Reading
from measure.device.telemetry import DeviceFacts, Processes, state_before


class Dummy:
    """One open device."""

    adapter = "dummy"
    polls = True

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {"energy_j": "no counter"}

    def facts(self) -> DeviceFacts:
        return DeviceFacts(name="Dummy 9000")

    def poll(self) -> Reading:
        return Reading(time_s=time.monotonic(), power_w=40.0, temperature_c=50.0)

    def processes(self) -> Processes | None:
        return None

    def preflight(self, baseline: Processes | None = None) -> dict[str, Any]:
        return state_before(self, baseline)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None: ...


def open_dummy(index_or_uuid: int | str = 0) -> Dummy:
    """The device."""
    return Dummy()
'''


@pytest.mark.slow
def test_add_a_vendors_telemetry(copy_with_tests: Path) -> None:
    tree, checks = copy_with_tests, "tests/measure/device/test_device_telemetry.py"
    vendor, registry = tree / "measure/device/dummy.py", tree / "measure/device/telemetry.py"
    write(vendor, VENDOR)
    insert(registry, '    "rapl":', '    "dummy": Adapter("cpu", "measure.device.dummy:open_dummy"),')
    assert failing(tree, checks) == set()
    facts = json.loads(run(tree, "runners.doctor", "--format", "json"))
    checked = [row["fact"] for row in facts["checks"] if row["topic"] == "telemetry"]
    assert "cpu by dummy: temperature_c (no counter)" in checked
    replace(vendor, "def processes", "def users")
    assert failing(tree, checks, "member", "are_there") == {"test_an_adapter_opens_a_device_with_every_member"}
    replace(registry, "dummy:open_dummy", "dummy:open_dumy")
    assert "test_the_registry_names_functions_that_are_there" in failing(tree, checks, "are_there")


@pytest.mark.slow
def test_add_a_published_utilization(copy_with_tests: Path) -> None:
    tree, checks = copy_with_tests, "tests/reports/project/test_compute_page.py"
    path = tree / "analysis/project/compute/published_utilization.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    like = next(row for row in rows if row["items_per_s"] and row["flop_per_item"] and not row["why_not"])
    with path.open("a", encoding="utf-8", newline="") as file:
        added = {**like, "source": "Dummy", "items_per_s": str(float(like["items_per_s"]) / 2)}
        csv.DictWriter(file, list(like), lineterminator="\n").writerow(added)
    before = f"{len(observations())} published runs"
    assert failing(tree, checks) == {"test_the_page_is_what_is_made_now", "test_numbers_in_other_documents"}
    run(tree, "benchmarks.pages.compute", "--write", "docs/compute.md")
    assert failing(tree, checks) == {"test_numbers_in_other_documents"}
    replace(tree / "CHANGELOG.md", before, f"{len(observations()) + 1} published runs")
    assert failing(tree, checks) == set()


@pytest.mark.slow
def test_add_an_operation(copy_with_tests: Path) -> None:
    tree, checks = copy_with_tests, "tests/analysis/operators/test_kinds.py"
    table = tree / "analysis/operators/pointwise.py"
    cost = (
        "from analysis.operators import registry; from tests.support.made_up_operations.made_up_operations "
        "import operation; print(registry.cost(operation('aten.special_bessel_j0', {'self': (4, 3)}, [(4, 3)])))"
    )
    asked = [sys.executable, "-c", cost]
    before = subprocess.run(asked, cwd=tree, capture_output=True, text=True, timeout=300)
    insert(table, "    # --- dropout: backward", '    ("elementwise", 7, "special_bessel_j0"),')
    after = subprocess.run(asked, cwd=tree, capture_output=True, text=True, timeout=300)
    assert "other_flop=0," in before.stdout
    assert "other_flop=84," in after.stdout  # 7 × 4 × 3
    assert failing(tree, checks, "test_every") == set()
    replace(table, "special_bessel_j0", "special_bessel_jay")
    assert failing(tree, checks, "test_every") == {"test_every_name_is_an_operation"}
    replace(table, "special_bessel_jay", "relu")
    twice = subprocess.run(asked, cwd=tree, capture_output=True, text=True, timeout=300)
    assert "ValueError: two rules for aten.relu" in twice.stderr


STEP = '''"""A cleaning step that is made up."""

from __future__ import annotations

from cleaning.counts.conventions import entry
from cleaning.counts.steps import Outcome
from results.records import FlopCount


def known_counters(counts: tuple[FlopCount, ...]) -> Outcome[FlopCount]:
    """Drops what the counter "other" counted."""
    kept = tuple(count for count in counts if count.counter != "other")
    dropped = tuple(count for count in counts if count.counter == "other")
    return Outcome(kept, dropped, tuple(entry("known_counters", each, "", each.flop, "", "other") for each in dropped))
'''

UNLOGGED = (', tuple(entry("known_counters", each, "", each.flop, "", "other") for each in dropped))', ")")


@pytest.mark.slow
def test_add_a_cleaning_step(copy_with_tests: Path) -> None:
    tree, checks = copy_with_tests, "tests/cleaning/counts/test_cleaning.py"
    step, pipeline = tree / "cleaning/counts/known_counters.py", tree / "cleaning/counts/pipeline.py"
    write(step, STEP)
    insert(pipeline, "from cleaning.counts.model", "from cleaning.counts.known_counters import known_counters")
    insert(pipeline, '    CleaningStep("model_op', '    CleaningStep("known_counters", FLOP_COUNTS, known_counters),')
    assert failing(tree, checks) == set()
    cleaned = (
        "from cleaning.counts.pipeline import clean_records; from tests.cleaning.counts.test_cleaning import count; "
        "rows = [count('conv'), count('conv', counter='other')]; made = clean_records({'flop_counts.csv': rows}); "
        "print([row.counter for row in made.flop_counts], [each.step for each in made.log])"
    )
    ended = subprocess.run([sys.executable, "-c", cleaned], cwd=tree, capture_output=True, text=True, timeout=300)
    assert ended.stdout == "['fvcore'] ['one_convention', 'one_convention', 'known_counters']\n", ended.stderr
    replace(step, *UNLOGGED)
    assert failing(tree, checks, "kept_and_dropped") == {"test_kept_and_dropped_are_what_came"}
    replace(pipeline, '"known_counters"', '"unknown_counters"')
    assert failing(tree, checks, "own_names") == {"test_steps_have_their_own_names_and_a_docstring"}


GATE = '''"""Gate that is made up: no session names itself a dummy."""

from __future__ import annotations

from collections.abc import Iterator

from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import RUN, Finding


def dummy(evidence: Evidence) -> Iterator[Finding]:
    """The state of each session before its first cell."""
    for sitting in evidence.data.sittings:
        holds = not sitting.preflight.get("dummy")
        yield Finding(RUN, holds, "" if holds else f"session {sitting.sitting} is a dummy")
'''


@pytest.mark.slow
def test_add_a_gate(copy_with_tests: Path) -> None:
    tree, checks = copy_with_tests, "tests/cleaning/gates/test_gates.py"
    selected = ("dummy", "has_a_planted_fault", "passes_every_gate", "in_the_words_of_the_code")
    write(tree / "cleaning/gates/dummy.py", GATE)
    gates = tree / "cleaning/gates/gates.py"
    replace(gates, "cell_summary, integrity", "cell_summary, dummy, integrity")
    insert(
        gates, '    Gate(\n        "self_test"', '    Gate("dummy", "no session is a dummy", dummy.dummy, "a session"),'
    )
    document = {"test_the_document_has_every_gate_in_the_words_of_the_code"}
    assert failing(tree, checks, *selected) == document | {"test_every_gate_has_a_planted_fault"}
    plant = '    "a session that is a dummy": ("dummy", preflight(dummy=True)),'
    insert(tree / checks, '    "a peak doubled by sparsity', plant)
    assert failing(tree, checks, *selected) == document
    insert(tree / "docs/evidence.md", "| `self_test` |", "| `dummy` | no session is a dummy |")
    assert failing(tree, checks, *selected) == set()
    replace(tree / "cleaning/gates/dummy.py", 'not sitting.preflight.get("dummy")', "True")
    assert failing(tree, checks, *selected) == {"test_a_planted_fault_turns_its_gate_red_and_no_other"}


@pytest.mark.slow
def test_add_a_lie(copy_with_tests: Path) -> None:
    tree, checks = copy_with_tests, "tests/cleaning/gates/test_lies.py"
    proofs = tree / "tests/support/lies/lie_proofs.py"
    insert(proofs, '    "statuses": {', '    "losses": {"dummy": _fields("runs", last_loss=-1.0)},')
    assert failing(tree, checks, "dummy", "taken_out") == set()
    replace(proofs, '"losses": {"dummy"', '"synchronised": {"dummy"')
    assert failing(tree, checks, "dummy") == {"test_a_lie_is_caught_by_its_gate"}


def test_every_recipe_is_done() -> None:
    """A section of CONTRIBUTING "Add a …" has a test of its name here."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (Add .*)$", text, re.MULTILINE)
    names = {"test_" + re.sub(r"\W+", "_", heading.replace("'", "").lower()) for heading in headings}
    assert len(names) > 10
    assert {name for name in names if name not in globals()} == set()
