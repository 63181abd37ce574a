"""Definition, injected fault: `report A B --fail-if` decides which conditions are met, not met or undecided."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reports.compare.cells import compare_runs
from reports.compare.gate import Condition, GateAnswer, _change, gate_markdown, judge
from reports.compare.page import ComparedRun
from results.records.answers import MET, NOT_COMPARED, NOT_MET, UNDECIDED, GateCheck
from results.store.reading import read_run
from runners import report as command
from tests.support.fakes.commands import refused, running
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_runs import new_store

KEY = ("tf32", 8, 0)
Plant = Callable[[made_up_evidence.Parts], object]


def write(path: Path, plant: Plant | None = None, grid: tuple[Any, ...] = (KEY,)) -> Path:
    return made_up_evidence.write(path, plant, made_up_evidence.parts(grid))


def checks(a: Path, b: Path, *asked: Condition) -> list[GateCheck]:
    first, second = read_run(a), read_run(b)
    return judge(first, second, compare_runs(first, second), asked or (Condition("slower", 0.02),))


def test_two_runs_by_themselves_need_the_margin_at_both_ends(tmp_path: Path) -> None:
    """One process on a side of a card: 3 % more at both ends, so that 2 % cannot be told and 10 % can."""
    a = write(tmp_path / "a")
    (equal,) = checks(a, write(tmp_path / "b"))
    assert (equal.outcome, equal.basis) == (UNDECIDED, "blocks")
    assert "sweep --repeat 5" in equal.reason
    assert equal.high_ratio is not None
    assert equal.high_ratio > 1.03
    (slower,) = checks(a, write(tmp_path / "c", partial(made_up_evidence.slower, factor=1.10)))
    assert slower.outcome == MET
    assert slower.low_ratio is not None
    assert 1.02 < slower.low_ratio < 1.10 / 1.03


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.034, "+3.4 %"), (0.95, "−5.0 %"), (1.0005, "+0.050 %"), (0.75, "−25 %"), (1.0, "0 %")]
)
def test_a_change_has_one_decimal_between_a_tenth_of_a_percent_and_ten(ratio: float, text: str) -> None:
    assert _change(ratio) == text


def test_one_call_more_is_exact(tmp_path: Path) -> None:
    """A product twice: its FLOP, bytes and one launch more, to the last digit; memory as it was."""
    made = made_up_evidence.parts((KEY,))
    twice = made.cells[KEY].operations[0]

    def again(parts: made_up_evidence.Parts) -> None:
        for part in parts.cells.values():
            part.operations = [*part.operations, replace(twice, index=len(part.operations))]

    a, b = write(tmp_path / "a"), write(tmp_path / "b", again)
    asked = [Condition(name, 0.0) for name in ("flop", "bytes", "launches", "memory")]
    found = {check.condition: check for check in checks(a, b, *asked)}
    from analysis.operators import registry

    cost = registry.cost(twice)
    for name, more in (("flop", cost.model_flop), ("bytes", cost.moved_bytes), ("launches", 1)):
        value_a, value_b = found[name].value_a, found[name].value_b
        assert value_a is not None
        assert value_b is not None
        assert (found[name].outcome, value_b - value_a) == (MET, more)
    assert found["memory"].outcome == NOT_MET
    (within,) = checks(a, b, Condition("launches", 0.5))
    assert within.outcome == NOT_MET


def test_what_calls_of_a_step_lack_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator without a formula: no FLOP, though both steps have the same calls. oneDNN's LSTM, whose workspace has
    no size: no bytes and no memory."""

    def unruled(parts: made_up_evidence.Parts) -> None:
        for part in parts.cells.values():
            first, *others = part.operations
            part.operations = [replace(first, name="my.product", kind=""), *others]

    def unsized(parts: made_up_evidence.Parts) -> None:
        for part in parts.cells.values():
            first, *others = part.operations
            names = ("input", "weight0", "weight1", "weight2", "weight3", "hx_", "cx_")
            layer = replace(
                first,
                name="aten.mkldnn_rnn_layer",
                kind="recurrent",
                input_names=names,
                input_shapes=((5, 8, 32), (128, 32), (128, 32), (128,), (128,), (8, 32), (8, 32)),
                input_dtypes=("float32",) * 7,
                output_shapes=((5, 8, 32), (8, 32), (8, 32), (0,)),
                output_dtypes=("float32", "float32", "float32", "uint8"),
                attributes={"mode": 2, "hidden_size": 32, "num_layers": 1, "has_biases": True, "bidirectional": False},
                reads=first.reads[:1] * 7,
                writes=first.writes[:1] * 4,
            )
            part.operations = [layer, *others]

    a, b = write(tmp_path / "a", unruled), write(tmp_path / "b", unruled)
    asked = [Condition(name, 0.0) for name in ("flop", "bytes", "launches", "memory")]
    found = {check.condition: check for check in checks(a, b, *asked)}
    assert {name: each.outcome for name, each in found.items()} == {
        "flop": NOT_COMPARED, "bytes": NOT_MET, "launches": NOT_MET, "memory": NOT_MET,
    }  # fmt: skip
    assert found["flop"].reason == "A: my.product × 1 have no formula; B: my.product × 1 have no formula"
    assert (found["flop"].value_a, found["flop"].value_b, found["flop"].ratio) == (None, None, None)
    code, out, _ = running(command.main, capsys)(a, b, "--fail-if", "flop:0")
    assert (code, "Equal to the last digit" in out) == (0, False)
    assert running(command.main, capsys)(a, b, "--fail-if", "flop:0", "--undecided", "fail")[0] == 5
    c = write(tmp_path / "c", unsized)
    lost = {check.condition: check.reason for check in checks(c, c, *asked) if check.outcome == NOT_COMPARED}
    assert {*lost} >= {"bytes", "memory"}
    assert "aten.mkldnn_rnn_layer keeps a workspace of no known size" in lost["memory"]


def test_a_cell_that_fails_in_b_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lost(parts: made_up_evidence.Parts) -> None:
        part = parts.cells[KEY]
        part.run = replace(part.run, status="out_of_memory", reason="61 GiB")
        part.samples = []

    a, b = write(tmp_path / "a"), write(tmp_path / "b", lost)
    code, out, _ = running(command.main, capsys)(a, b, "--fail-if", "flop:0")
    assert code == 5
    assert "not trained any more in 1 of 1 cell" in " ".join(out.split())
    assert "B was not measured: out_of_memory: 61 GiB" in out
    assert running(command.main, capsys)(b, a, "--fail-if", "flop:0")[0] == 0


def test_cells_of_one_run_alone_are_told_and_fail_where_undecided_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", None, (KEY, ("tf32", 16, 0)))
    run = running(command.main, capsys)
    code, out, _ = run(a, b, "--fail-if", "flop:0")
    assert (code, "only in B" in out, "The gate passes" in out) == (0, True, True)
    code, out, _ = run(a, b, "--fail-if", "flop:0", "--undecided", "fail")
    assert (code, "The gate fails: not all could be compared in 1 of 2 cells" in out) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail-if", "slowr:2%"), ("unknown condition", "nearest slower")),
        (("--fail-if", "slower"), ("expected slower:LIMIT", "got 'slower'")),
        (("--fail-if", "slower:x%"), ("slower: expected a limit such as 2%", "got 'x%'")),
        (("--fail-if", "slower:2"), ("slower: expected a limit such as 2%", "got '2'")),
        (("--fail-if", "memory:0.01"), ("memory: expected a limit such as 2%", "got '0.01'")),
        (("--fail-if", "flop:-1"), ("expected a limit",)),
        (("--fail-if", "flop:0,flop:1"), ("expected flop once",)),
        (("--undecided", "fail"), ("--fail-if",)),
        (("--format", "markdown"), ("--fail-if",)),
        (("--fail-if", "flop:0", "--undecided", "maybe"), ("pass or fail",)),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(running(command.main, capsys)(tmp_path / "a", tmp_path / "b", *arguments), *words)


def test_names_in_a_comment_are_no_markup(tmp_path: Path) -> None:
    a, b = read_run(write(tmp_path / "a")), read_run(write(tmp_path / "b"))
    row = GateCheck(
        condition="slower",
        model="<img src=x>|[x](y) @all",
        batch_size=1,
        precision="fp32",
        outcome=MET,
        reason="`a`\nb",
    )
    text = gate_markdown(
        GateAnswer([row], [Condition("slower", 0.0)], (ComparedRun("A", "a", a), ComparedRun("B", "b", b)))
    )
    assert "&lt;img src=x&gt;\\|\\[x\\](y) \\@all" in text
    assert "\\`a\\` b" in text


def test_a_run_without_tables_is_not_compared(tmp_path: Path) -> None:
    a, b = (read_run(write(tmp_path / name)) for name in "ab")
    b = replace(b, runs=[replace(run, trace_id="") for run in b.runs])
    (found,) = judge(a, b, compare_runs(a, b), [Condition("flop", 0.0)])
    assert (found.outcome, found.reason) == (NOT_COMPARED, "B: no table of the step (--methods exact)")


def test_an_empty_run_and_one_run_are_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a")
    new_store(tmp_path / "empty").close()
    run = running(command.main, capsys)
    refused(run(a, tmp_path / "empty", "--fail-if", "slower:2%"), "has no committed cell")
    refused(run(a, "--fail-if", "slower:2%"), "expected two runs")
