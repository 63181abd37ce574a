"""Every fault of the catalogue on the installed versions: still there, or the test says that upstream has mended it."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections import Counter as Tally
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.utils.flop_counter

from measure.counters.faults.catalogue import running
from measure.counters.faults.catalogue.catalogue import COUNTERS, faults_of
from measure.counters.faults.catalogue.fault import CAUSES, KINDS, Fault
from measure.counters.faults.catalogue.page import page, value
from measure.counters.harness.corrected import flop_counter_mode
from measure.counters.harness.registry import COUNTERS as REGISTRY
from measure.device.processes import prepare
from runners import faults
from runners.cli import exits
from tests.support.fakes.fake_faults import prints

PAGE = Path(__file__).parents[4] / "docs" / "counter-faults.md"
EVERY = [(counter, fault) for counter in COUNTERS for fault in faults_of(counter)]


def identity(item: object) -> str:
    return item.name if isinstance(item, Fault) else str(item)


@functools.cache
def outcomes(counter: str) -> dict[str, running.Outcome]:
    prepare()
    return {outcome.name: outcome for outcome in running.run(counter)}


# --- on the installed versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "fault"), EVERY, ids=identity)
def test_it_is_still_there(counter, fault):
    outcome = outcomes(counter)[fault.name]
    package = COUNTERS[counter].package
    if outcome.status == "unavailable":
        pytest.skip(f"{package} is not installed")
    if outcome.status == "mended":
        pytest.fail(f"{fault.name} is mended upstream in {package} {outcome.version}: update the catalogue")
    assert outcome.status in ("there", "not here"), (
        f"{package} {outcome.version} gives {outcome.found!r} ({outcome.detail}), neither {fault.seen!r} nor what is "
        f"right, {fault.right!r}: update the catalogue"
    )


NOT_MENDED = {
    "quantised_linear": "an operator outside of ATen",
    "sparse": "sparse matrices count as dense",
    "work_of_another_thread": "a mode belongs to its thread",
    "custom_operator": "no formula for it anywhere",
    "mkldnn_layout": "its tensors have no form that a formula could read",
    "gradient_of_an_input": "PyTorch's module tracker",
    "gradient_penalty": "PyTorch's module tracker",
    "module_that_returns_its_input": "PyTorch's module tracker",
    "nested_tensor": "PyTorch's dispatch",
    "flex_attention": "PyTorch's dispatch",
    "compiled_graph_is_not_run": "as with every dispatch mode",
    "module_called_twice": "PyTorch's module tracker",
    "module_of_two_names": "PyTorch's module tracker",
    "hooks_are_never_freed": "PyTorch's module tracker",
    "raw_formulas": "its formulas set the attribute themselves",
}
"""What the corrected mode leaves as it is."""


@pytest.mark.parametrize("fault", faults_of("flop_counter_mode"), ids=identity)
def test_the_corrected_mode_gives_the_right_value(fault, monkeypatch):
    """The reproductions with the mode exchanged. The right values of the catalogue are derived by hand, those of the
    mode come from formulas that are held to plain loops; so this checks both."""
    if fault.name in NOT_MENDED:
        assert NOT_MENDED[fault.name]
        return
    monkeypatch.setattr(torch.utils.flop_counter, "FlopCounterMode", flop_counter_mode)
    assert running.plain(fault.reproduce()) == running.plain(fault.right)


def test_what_is_not_mended_is_named_by_name():
    assert set(NOT_MENDED) <= {fault.name for fault in faults_of("flop_counter_mode")}


# --- the catalogue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "fault"), EVERY, ids=identity)
def test_an_entry_says_what_it_is(counter, fault):
    assert fault.kind in KINDS
    assert fault.cause in CAUSES
    assert running.plain(fault.seen) != running.plain(fault.right), "no fault"
    assert fault.what.endswith(".") and fault.why.endswith("."), "one sentence, and how the right value follows"  # noqa: PT018
    assert all(thread.isdigit() for thread in fault.threads)
    assert fault.concerns("2.15.0") in (True, False)  # or its condition cannot be read
    assert (fault.kind == "crash") == str(fault.seen).startswith("raises") or fault.seen in (None, [None, 1_664], True)


def functions(module: str) -> set[str]:
    """The reproductions that a file of the package has."""
    held = vars(importlib.import_module(f"measure.counters.faults.reproductions.{module}"))
    return {
        n for n, f in held.items() if inspect.isfunction(f) and f.__module__.endswith(f".{module}") and n[0] != "_"
    } - {"faults", "complexity"}  # the table, and how both of ptflops' backends are called


@pytest.mark.parametrize("counter", COUNTERS)
def test_every_reproduction_has_its_entry_and_only_one(counter):
    listed = [fault.name for fault in faults_of(counter)]
    assert len(set(listed)) == len(listed)
    assert functions(counter) <= set(listed) <= functions(counter) | shared_functions()


def shared_functions() -> set[str]:
    return functions("shared") | functions("profilers") | functions("calls")


@pytest.mark.parametrize(("shared", "least"), [("shared", 2), ("profilers", 2), ("calls", 1)])
def test_a_shared_reproduction_is_used(shared, least):
    uses = Tally(fault.name for _, fault in EVERY if inspect.getmodule(fault.reproduce).__name__.endswith(shared))
    assert set(uses) == functions(shared)
    assert min(uses.values()) >= least


def test_every_word_is_used():
    assert {fault.kind for _, fault in EVERY} == set(KINDS)
    assert {fault.cause for _, fault in EVERY} == set(CAUSES)


def test_the_registrys_counters_of_others_are_all_here():
    assert set(REGISTRY) - {"flopledger"} <= set(COUNTERS)


def test_the_page_is_made_from_the_catalogue():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m runners.faults --write docs/counter-faults.md"


def test_values_on_the_page():
    assert value(1234567) == "1,234,567"
    assert value([True, None, 3]) == "yes; nothing; 3"
    assert value({"a": 1_000, "b": "raises X"}) == "a: 1,000; b: raises X"


# --- how they are run ------------------------------------------------------------------------------------------------


def test_whatever_a_reproduction_does_is_an_outcome(capfd):
    """A patch does not reach the next; what hangs or dies costs its own line."""
    prepare()
    found = running.run("torch_profiler", each_s=2.0, module="tests.support.fakes.fake_faults")
    assert [outcome.status for outcome in found] == [
        "there",
        "mended",
        "timeout",
        "timeout",
        "there",
        "other",
        "other",
        "not here",
    ]
    assert found[4].detail == "a b"
    assert found[5].found == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("versions", "found", "status"),
    [
        ("", 1, "there"),
        ("", 2, "mended"),
        ("", 3, "other"),
        ("<2.15", 2, "not here"),
        ("<2.15", 1, "other"),
        ("<2.16", 1, "there"),
        (">=2.15", 1, "there"),
        (">=2.12,<2.15", 3, "not here"),
        ("<2.15.1", 1, "there"),
    ],
)
def test_the_verdict(versions, found, status):
    fault = Fault(prints, "crash", "formula", seen=1, right=2, versions=versions)
    assert running.verdict(fault, found, "2.15.0+cpu") == status


def test_a_condition_that_cannot_be_read_is_refused():
    with pytest.raises(ValueError, match="expected a condition such as"):
        Fault(prints, "crash", "formula", 1, 2, versions="~2.1").concerns("2.15.0")


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """All faults of pthflops with this status."""

    def replaced(status: str) -> None:
        def run(counter, each_s=0.0):
            return [running.Outcome(counter, f.name, "1.0", status, f.seen) for f in faults_of(counter)]

        monkeypatch.setattr(running, "run", run)

    return replaced


def test_the_table_lists_what_is_not_as_the_catalogue_has_it(made_up, capsys):
    made_up("there")
    assert faults.main(["--counters", "pthflops"]) == 0
    assert "pthflops.residual" not in capsys.readouterr().out
    assert faults.main(["--counters", "pthflops", "--detail"]) == 0
    assert "there pthflops.residual: a + b counts two an element. (gives 20, right 10)" in capsys.readouterr().out
    made_up("mended")
    assert faults.main(["--counters", "pthflops"]) == 0
    assert "mended pthflops.residual" in capsys.readouterr().out
    made_up("timeout")
    assert faults.main(["--counters", "pthflops"]) == exits.FAILED


def test_rows_as_json_and_csv(made_up, capsys):
    made_up("there")
    assert faults.main(["--counters", "pthflops", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["fault"] for row in rows} == {fault.name for fault in faults_of("pthflops")}
    (row,) = [row for row in rows if row["fault"] == "residual"]
    assert (row["found"], row["seen"], row["right"], row["kind"], row["cause"]) == (
        20,
        20,
        10,
        "wrong count",
        "formula",
    )
    assert faults.main(["--counters", "pthflops", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(rows)
    assert lines[0].split(",") == list(rows[0])


def test_writing_the_page(tmp_path, capsys):
    assert faults.main(["--write", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page()
    assert faults.main(["--write", str(tmp_path / "no" / "page.md")]) == exits.UNWRITABLE
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")


def test_an_unknown_counter_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        faults.main(["--counters", "fvcor"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
