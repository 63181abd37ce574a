"""Two interleaved sides on a planned clock: order, stopping, a planted slow-down, a side that fails."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.utilization import log_ratios
from measure.timing import Protocol
from results.records import Cell, Sample
from runners.sweep.against import pairs as against_pairs
from runners.sweep.against.pairs import (
    Rules,
    SideFault,
    SideRun,
    _to_next_look,
    inside,
    least_interleaved_s,
    measurement_of,
    time_interleaved,
)
from runners.sweep.against.task import SideEnd, SideStart
from runners.sweep.findings import CellFindings
from runners.workers import WorkerFault

CELL = Cell(model="synthetic_matmul", batch_size=8, device="cpu", precision="fp32")
PROTOCOL = Protocol.for_device("cpu", quick=True)
RULES = Rules(limit_ratio=0.02, alarm_ratio=0.05, cap_s=math.inf, timeout_s=math.inf, most_pairs=30, rounds=3)


class FakeClock:
    """Time that passes only in blocks; drifts: by how much longer each block takes than the one before."""

    def __init__(self, drift_ratio: float = 0.0) -> None:
        self.now_s, self.speed, self.drift_ratio = 1000.0, 1.0, drift_ratio
        self.order: list[str] = []

    def spend(self, seconds: float) -> tuple[float, float]:
        start_s, self.speed = self.now_s, self.speed * (1 + self.drift_ratio)
        took_s = seconds * self.speed
        self.now_s += took_s + 1e-3
        return start_s, took_s


class FakeSide:
    """A worker whose steps take what it is told, by the pair's number; `fails` answers in place of a block.

    steps: what its warm-up asks for. burst_s: what each block takes besides its steps.
    """

    def __init__(
        self,
        name: str,
        clock: FakeClock,
        step_s: Callable[[int], float],
        fails: int | None = None,
        steps: int = 2,
        burst_s: float = 0.0,
    ) -> None:
        self.name, self.clock, self.step_s, self.fails = name, clock, step_s, fails
        self.steps, self.burst_s = steps, burst_s
        self.pair, self.blocks, self.firsts = -1, 0, []

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        task = task.rpartition(":")[2]
        if task == "begin":
            self.pair += 1
            self.firsts.append(arguments[2])
            start_s, took_s = self.clock.spend(0.5)
            warm = Sample(part="warmup", steps=5, start_s=start_s, wall_s=took_s)
            return SideStart((warm,), self.steps, True, CellFindings(parameters=11, warmup_steps=5))
        if task == "end":
            return SideEnd(CellFindings(last_loss=1.5, peak_memory_bytes=100 - self.pair), ())
        self.blocks += 1
        if self.blocks == self.fails:
            return WorkerFault("crashed", "the worker was killed by SIGKILL")
        self.clock.order.append(self.name)
        (steps,) = arguments
        start_s, took_s = self.clock.spend(self.burst_s + steps * self.step_s(self.pair))
        return Sample(part="measure", steps=steps, start_s=start_s, wall_s=took_s)

    def stop(self) -> None:
        self.clock.order.append("|")


def sides(a: FakeSide, b: FakeSide) -> tuple[SideRun, SideRun]:
    return SideRun("A", CELL, Path.cwd(), lambda: a), SideRun("B", CELL, Path.cwd(), lambda: b)


def scattered(factor: float, places: tuple[float, ...] = (0.004, -0.004, 0.002, -0.003)) -> Callable[[int], float]:
    return lambda pair: 0.1 * factor * (1 + places[pair % len(places)])


def compared(clock: FakeClock, factor: float, rules: Rules = RULES) -> tuple[str, SideRun, SideRun]:
    a, b = sides(FakeSide("A", clock, lambda pair: 0.1), FakeSide("B", clock, scattered(factor)))
    return time_interleaved(a, b, PROTOCOL, rules, lambda text: None), a, b


def test_rounds_alternate_and_every_other_pair_begins_with_b() -> None:
    clock = FakeClock()
    compared(clock, 1.0)
    pairs = "".join(clock.order).split("||")
    assert pairs[0] == "ABBA" * 3
    assert pairs[1] == "BAAB" * 3
    assert len(pairs) == 7, "six pairs decide that nothing is slower by 2 %, and what is left is empty"


@pytest.mark.parametrize(("factor", "pairs"), [(1.0, 6), (1.05, 6), (1.10, 6)])
def test_a_plain_answer_comes_at_the_first_look(factor: float, pairs: int) -> None:
    said, a, b = compared(FakeClock(), factor)
    assert f"after {pairs} pairs" in said
    values = log_ratios(*map(numbered, (a, b)))
    assert sum(values) / len(values) == pytest.approx(math.log(factor), abs=0.003)


def numbered(side: SideRun) -> list[Sample]:
    return list(measurement_of(side, PROTOCOL).blocks)


def test_a_drift_of_the_machine_cancels() -> None:
    """Each block takes 0.1 % longer than the one before: B alone, measured after A, would seem 3 % slower or more."""
    _, a, b = compared(FakeClock(drift_ratio=0.001), 1.0, RULES)
    values = log_ratios(*map(numbered, (a, b)))
    assert abs(sum(values) / len(values)) < 0.002


def test_what_is_on_the_limit_stays_undecided_until_the_pairs_run_out() -> None:
    said, a, _ = compared(FakeClock(), 1.02)
    assert said.startswith("undecided: ")
    assert "after 30 pairs" in said
    assert sum(each.part == "measure" for each in a.samples) == 30 * 6


def test_what_is_known_of_several_processes_is_put_together() -> None:
    clock = FakeClock()
    workers = FakeSide("A", clock, lambda pair: 0.1), FakeSide("B", clock, scattered(1.0))
    a, b = sides(*workers)
    time_interleaved(a, b, PROTOCOL, RULES, lambda text: None)
    assert workers[0].firsts == [True, *[False] * 5], "the real step is traced once"
    found = measurement_of(a, PROTOCOL)
    assert found.findings.warmup_steps == 6 * 5
    assert found.findings.peak_memory_bytes == 100
    assert found.findings.parameters == 11
    assert found.status == "ok"
    assert found.warnings[0].startswith("in_turn: ")
    assert [each.index for each in found.blocks] == list(range(6 * 7))


@pytest.mark.parametrize(("asked", "common"), [((2, 60), 40), ((60, 2), 40), ((7, 60), 60), ((1, 1), 1)])
def test_both_sides_of_a_pair_have_one_number_of_steps(asked: tuple[int, int], common: int) -> None:
    """A warm-up that met a burst asks for 2 steps, the other one for 60; a block loses 1 s to the machine.

    Blocks of 2 and 60 steps would take 0.6 and 0.117 s a step: equal sides would seem to differ by a factor of 5.
    """
    clock = FakeClock()
    a, b = sides(*(FakeSide(name, clock, lambda pair: 0.1, None, n, 1.0) for name, n in zip("AB", asked, strict=True)))
    time_interleaved(a, b, PROTOCOL, RULES, lambda text: None)
    assert {block.steps for side in (a, b) for block in side.samples if block.part == "measure"} == {common}
    assert log_ratios(numbered(a), numbered(b)) == pytest.approx([0.0] * 6)


def test_blocks_of_far_more_steps_on_one_side_are_no_pair() -> None:
    """As runs before this rule may have them."""
    clock = FakeClock()
    a, b = sides(*(FakeSide(name, clock, lambda pair: 0.1) for name in "AB"))
    time_interleaved(a, b, PROTOCOL, RULES, lambda text: None)
    longer = [replace(block, steps=5) if block.part == "measure" else block for block in numbered(b)]
    with pytest.raises(ValueError, match="expected one number of steps a pair, got blocks of 2 and of 5"):
        log_ratios(numbered(a), longer)


@pytest.mark.parametrize("failing", ["A", "B"])
def test_a_side_that_fails_ends_both_processes_and_is_named(failing: str) -> None:
    clock = FakeClock()
    workers = [FakeSide(name, clock, lambda pair: 0.1, 9 if name == failing else None) for name in "AB"]
    a, b = sides(*workers)
    with pytest.raises(SideFault) as fault:
        time_interleaved(a, b, PROTOCOL, RULES, lambda text: None)
    assert (fault.value.side, fault.value.fault.status) == (failing, "crashed")
    assert clock.order[-2:] == ["|", "|"]


def test_processes_of_a_side_begin_in_its_folder_and_import_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    for folder in (new, old):
        folder.mkdir()
    monkeypatch.chdir(new)
    monkeypatch.setattr(sys, "path", ["", str(new), "/elsewhere"])
    with inside(old):
        assert (Path.cwd(), sys.path) == (old, [str(old), str(old), "/elsewhere"])
    assert (Path.cwd(), sys.path) == (new, ["", str(new), "/elsewhere"])
    with pytest.raises(OSError, match="gone"), inside(tmp_path / "gone"):
        pass
    assert sys.path == ["", str(new), "/elsewhere"]
    assert os.getcwd() == str(new)


def test_the_time_to_the_next_look_is_told_after_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are after 6 and 9 pairs; of eight the last is looked at, too. A stopwatch that has 10 s a pair."""
    clock, told = FakeClock(), []
    a, b = sides(FakeSide("A", clock, scattered(1.0)), FakeSide("B", clock, scattered(1.0)))
    rules = replace(RULES, limit_ratio=0.0, most_pairs=8)
    monkeypatch.setattr(against_pairs, "Stopwatch", lambda: SimpleNamespace(elapsed_s=10.0))
    time_interleaved(a, b, PROTOCOL, rules, lambda text: None, told.append)
    assert told == pytest.approx([5 * 10, 4 * 10 / 2, 3 * 10 / 3, 2 * 10 / 4, 10 / 5, 2 * 10 / 6, 10 / 7])
    assert _to_next_look(0, rules) == 6
    assert [_to_next_look(pairs, replace(RULES, most_pairs=30)) for pairs in (1, 5, 6, 8, 9, 27)] == [5, 1, 3, 1, 4, 3]
    assert _to_next_look(6, rules) == 2  # the last pair is looked at, too


def test_the_least_of_a_comparison_is_six_pairs_of_both_sides() -> None:
    """A side warms up for warm_min_s, and has half of the blocks of three rounds A B B A."""
    side_s = PROTOCOL.warm_min_s + 3 * 2 * PROTOCOL.block_s
    assert least_interleaved_s(PROTOCOL, RULES) == pytest.approx(6 * 2 * side_s)
    assert least_interleaved_s(PROTOCOL, replace(RULES, most_pairs=2)) == pytest.approx(2 * 2 * side_s)
