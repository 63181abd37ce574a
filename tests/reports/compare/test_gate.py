"""`report A B --fail-if`: what is met, what is not, what nobody can tell; exact quantities apart from times."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.utilization import log_ratios
from reports.compare import Condition, gate_markdown, gate_text, judge
from reports.compare.cells import compare_runs
from reports.compare.gate_answer import _cells
from reports.compare.page import Side
from reports.compare.text import interval_text, to_text
from results.records import MET, NOT_COMPARED, NOT_MET, UNDECIDED, GateCheck, Sample
from results.store import Pairing, pairing_of, read_run
from runners.report import command
from tests.support.fakes.commands import refused, running
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_runs import new_store

KEY = ("tf32", 8, 0)
ALL = "slower:2%,flop:0,bytes:0,launches:0,memory:1%"
Plant = Callable[[made_up_evidence.Parts], object]


def write(path: Path, plant: Plant | None = None, grid: tuple[Any, ...] = (KEY,)) -> Path:
    made = made_up_evidence.parts(grid)
    if plant is not None:
        plant(made)
    return made_up_evidence.write(path, made=made)


def interleaved(
    side: str, slower: float = 1.0, pairs: int = 9, rounds: int = 3, shift_s: float = 0.0, **more: Any
) -> Plant:
    """Blocks A B B A of processes that differ by up to 1.2 %, B's last `slower` times as long."""

    def plant(parts: made_up_evidence.Parts) -> None:
        pairing = Pairing("one", side, **more)
        parts.manifest = replace(parts.manifest, options={**parts.manifest.options, **pairing.as_option()})
        for part in parts.cells.values():
            part.samples = interleaved_samples(side, part.run.cell_id, slower, pairs, rounds, shift_s)

    return plant


def interleaved_samples(
    side: str, cell_id: str, slower: float, pairs: int, rounds: int, shift_s: float = 0.0
) -> list[Sample]:
    found = []
    for pair in range(pairs):
        noise = 1 + (0.006 * (-1) ** pair if side == "B" else 0.0)
        steps = [("warmup", 0)] + [
            ("measure", 1 + 4 * each + place) for each in range(rounds) for place in _PLACES[side]
        ]
        for part, place in steps:
            time_s = 0.1 * noise * (slower if side == "B" else 1.0)
            start_s = 1000.0 + 100 * pair + place + shift_s
            times = {"start_s": start_s, "wall_s": time_s, "device_s": time_s, "sync_wait_s": 0.0}
            found.append(Sample(cell_id=cell_id, attempt=1, index=len(found), part=part, steps=1, **times))
    return found


_PLACES = {"A": (0, 3), "B": (1, 2)}


def checks(a: Path, b: Path, *asked: Condition) -> list[GateCheck]:
    first, second = read_run(a), read_run(b)
    return judge(first, second, compare_runs(first, second), asked or (Condition("slower", 0.02),))


@pytest.mark.parametrize(("slower", "outcome"), [(1.0, NOT_MET), (1.05, MET), (1.02, UNDECIDED), (0.9, NOT_MET)])
def test_interleaved_blocks_decide(tmp_path: Path, slower: float, outcome: str) -> None:
    """Processes scatter by 0.6 % about the planted ratio: 5 % is beyond the limit of 2 %, 0 % within, 2 % on it."""
    a, b = write(tmp_path / "a", interleaved("A")), write(tmp_path / "b", interleaved("B", slower))
    (found,) = checks(a, b)
    assert (found.outcome, found.basis, found.reason) == (outcome, "pairs", "")
    mean = (4 * math.log(1.006) + 3 * math.log(0.994)) / 7  # of nine the lowest and the highest do not count
    assert found.ratio == pytest.approx(slower * math.exp(mean))
    assert found.low_ratio < found.ratio < found.high_ratio  # type: ignore[operator]


def test_pairs_far_from_the_others_do_not_count_and_are_said(tmp_path: Path) -> None:
    """One of nine pairs of processes has B at nine times its time: the mean would be 9 ** (1 / 9) = 1.28."""

    def burst(parts: made_up_evidence.Parts) -> None:
        interleaved("B")(parts)
        for part in parts.cells.values():
            part.samples = [
                replace(row, wall_s=row.wall_s * 9, device_s=row.device_s and row.device_s * 9)
                if 1300 <= row.start_s < 1400 and row.part == "measure"
                else row
                for row in part.samples
            ]

    (found,) = checks(write(tmp_path / "a", interleaved("A")), write(tmp_path / "b", burst))
    assert (found.outcome, found.basis) == (NOT_MET, "pairs")
    assert found.reason == "1 of 9 pairs is far from the others: the ratio is of a typical pair"


def test_the_alarm_rate_is_shared_by_the_cells_that_were_planned(tmp_path: Path) -> None:
    def width(cells: int) -> float:
        a = write(tmp_path / f"a{cells}", interleaved("A", cells=cells))
        (found,) = checks(a, write(tmp_path / f"b{cells}", interleaved("B", cells=cells)))
        assert found.low_ratio is not None
        assert found.high_ratio is not None
        return math.log(found.high_ratio / found.low_ratio)

    assert width(10) > 1.2 * width(1)


@pytest.mark.parametrize(
    ("plants", "said"),
    [
        ((interleaved("A"), interleaved("B", shift_s=50.0)), "expected rounds of ABBA or BAAB"),
        ((interleaved("A"), interleaved("B", pairs=5)), "too few pairs of processes"),
    ],
)
def test_blocks_that_do_not_alternate_are_read_as_two_runs(tmp_path: Path, plants: Any, said: str) -> None:
    (found,) = checks(write(tmp_path / "a", plants[0]), write(tmp_path / "b", plants[1]))
    assert found.basis == "blocks"
    assert said in found.reason


def test_runs_of_two_comparisons_are_no_pair(tmp_path: Path) -> None:
    def other(parts: made_up_evidence.Parts) -> None:
        interleaved("B")(parts)
        parts.manifest = replace(parts.manifest, options=Pairing("another", "B").as_option())

    (found,) = checks(write(tmp_path / "a", interleaved("A")), write(tmp_path / "b", other))
    assert (found.basis, found.reason.startswith("read as two runs")) == ("blocks", False)


def test_two_runs_by_themselves_need_the_margin_at_both_ends(tmp_path: Path) -> None:
    """One process on a side of a card: 3 % more at both ends, so that 2 % cannot be told and 10 % can."""

    def slow(factor: float) -> Plant:
        def plant(parts: made_up_evidence.Parts) -> None:
            for part in parts.cells.values():
                part.samples = [
                    replace(row, wall_s=row.wall_s * factor, device_s=row.device_s and row.device_s * factor)
                    for row in part.samples
                ]

        return plant

    a = write(tmp_path / "a")
    (equal,) = checks(a, write(tmp_path / "b"))
    assert (equal.outcome, equal.basis) == (UNDECIDED, "blocks")
    assert "sweep --against" in equal.reason
    assert equal.high_ratio is not None
    assert equal.high_ratio > 1.03
    (slower,) = checks(a, write(tmp_path / "c", slow(1.10)))
    assert slower.outcome == MET
    assert slower.low_ratio is not None
    assert 1.02 < slower.low_ratio < 1.10 / 1.03


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


def test_a_comment_begins_with_what_was_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a", interleaved("A")), write(tmp_path / "b", interleaved("B", 1.1))
    more = write(tmp_path / "more", None, (KEY, ("tf32", 16, 0)))
    run = running(command.main, capsys)
    marks = {
        (name, how): run(a, other, "--fail-if", limit, "--undecided", how, "--format", "markdown")[1].split()[1]
        for name, other, limit in (("within", b, "slower:50%"), ("beyond", b, "slower:2%"), ("lacking", more, "flop:0"))
        for how in ("pass", "fail")
    }
    assert marks == {
        **{("within", how): "✅" for how in ("pass", "fail")},
        **{("beyond", how): "❌" for how in ("pass", "fail")},
        ("lacking", "pass"): "⚠️",
        ("lacking", "fail"): "❌",
    }


def test_ends_of_intervals_that_nobody_reads_are_bounds() -> None:
    """As of ten pairs whose values differ by factors: 1.7e-9 to 6.4e8 was printed."""
    assert interval_text(1.7e-9, 6.4e8, 4) == "< 0.01 to > 100"
    assert interval_text(0.011, 99.0) == "0.0110 to 99.0"
    ends = {"ratio": 1.04, "low_ratio": 1.7e-9, "high_ratio": 6.4e8}
    row = GateCheck(condition="slower", model="net", batch_size=8, precision="fp32", outcome=UNDECIDED, **ends)
    assert _cells(row)[-3:-1] == ["+4.0 %", "< −99 % to > +9900 %"]


def test_a_run_without_tables_is_not_compared(tmp_path: Path) -> None:
    a, b = (read_run(write(tmp_path / name)) for name in "ab")
    b = replace(b, runs=[replace(run, trace_id="") for run in b.runs])
    (found,) = judge(a, b, compare_runs(a, b), [Condition("flop", 0.0)])
    assert (found.outcome, found.reason) == (NOT_COMPARED, "B: no table of the step (--methods exact)")


def test_formats_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a", interleaved("A")), write(tmp_path / "b", interleaved("B", 1.1))
    run = running(command.main, capsys)
    answers = {form: run(a, b, "--fail-if", ALL, "--format", form) for form in ("text", "markdown", "csv", "json")}
    assert {answer[0] for answer in answers.values()} == {5}
    rows = list(csv.DictReader(io.StringIO(answers["csv"][1])))
    told = json.loads(answers["json"][1])
    assert told["gate"] == "fails"
    assert [row["outcome"] for row in rows] == [row["outcome"] for row in told["checks"]] == ["met", *["not met"] * 4]
    first = answers["markdown"][1].splitlines()[0]
    assert first == "### ❌ The gate fails: slower by more than 2 % in 1 of 1 cell."
    assert answers["text"][1].splitlines()[0] == first.removeprefix("### ❌ ")
    assert "Equal to the last digit: FLOP, bytes, launches, memory (1 cell)." in answers["text"][1]
    assert max(map(len, answers["text"][1].splitlines())) <= 100


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    a, b = (read_run(write(tmp_path / name, interleaved(name.upper(), 1.1))) for name in "ab")
    asked = [Condition(name, 0.02) for name in ("slower", "flop")]
    found = judge(a, b, compare_runs(a, b), asked)
    text = gate_text(found, asked, (Side("A", "a", a), Side("B", "b", b)), False, width)
    assert max(map(len, text.splitlines())) <= width
    assert "MET" in text
    compared = to_text(compare_runs(a, b), "a" * 70, "b", width=width)
    assert max(map(len, compared.splitlines())) <= max(width, 70)
    assert "slower" in compared


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
    text = gate_markdown([row], [Condition("slower", 0.0)], (Side("A", "a", a), Side("B", "b", b)), False)
    assert "&lt;img src=x&gt;\\|\\[x\\](y) \\@all" in text
    assert "\\`a\\` b" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail-if", "slowr:2%"), ("unknown condition", "nearest slower")),
        (("--fail-if", "slower"), ("expected slower:LIMIT", "got 'slower'")),
        (("--fail-if", "slower:x%"), ("slower: expected a limit such as 2% or 0.02", "got 'x%'")),
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


def test_an_empty_run_and_one_run_are_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a")
    empty = tmp_path / "empty"
    new_store(empty).close()
    run = running(command.main, capsys)
    refused(run(a, empty, "--fail-if", "slower:2%"), "has no committed cell")
    refused(run(a, "--fail-if", "slower:2%"), "expected two runs")


def test_other_devices_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def other(parts: made_up_evidence.Parts) -> None:
        parts.sittings = [replace(sitting, device_name="NVIDIA H100 PCIe") for sitting in parts.sittings]

    a, b = write(tmp_path / "a"), write(tmp_path / "b", other)
    refused(running(command.main, capsys)(a, b, "--fail-if", "slower:2%"), "device_name is")


def test_a_damaged_mark_of_a_pair_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def damaged(parts: made_up_evidence.Parts) -> None:
        parts.manifest = replace(parts.manifest, options={"against": {"identity": "x", "side": "C"}})

    a, b = write(tmp_path / "a", damaged), write(tmp_path / "b")
    refused(running(command.main, capsys)(a, b, "--fail-if", "slower:2%"), "expected a side of a comparison")
    assert pairing_of({}) is None


def test_a_pair_that_ended_in_a_round_counts_its_whole_rounds() -> None:
    a, b = (interleaved_samples(side, "x", 1.25, 1, 2) for side in "AB")
    assert log_ratios(a, b[:-1]) == pytest.approx([math.log(1.25 * 1.006)])
    assert log_ratios(a[:2], b[:3]) == []
    assert log_ratios([], b) == []


def test_the_command_has_the_conditions_of_the_gate() -> None:
    from reports.compare.gate import CONDITIONS
    from runners.report.gate import NAMES

    assert NAMES == CONDITIONS
