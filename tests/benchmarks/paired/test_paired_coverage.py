"""The shares that `benchmarks.paired.coverage` reports, of cells whose intervals are known."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.paired.coverage import any_window, line_of, means, one_cell, report
from measure.timing.ceiling_blocks import CeilingKernel
from measure.timing.clocks import clock_for
from measure.timing.protocols import Protocol


def cells(count: int, half: float, seed: int = 0) -> list[dict[str, object]]:
    """Of a true step of 1 s and a use of 50 %: each estimate is off by 1 % (normal), intervals are ± half."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        line: dict[str, object] = {"status": "ok", "blocks": 9, "moved": 0, "round_trip": 9e-8}
        for name, truth in (("step", 1.0), ("used", 0.5)):
            value = truth * math.exp(chance.gauss(0, 0.01))
            line |= {name: value, f"{name}_low": value * math.exp(-half), f"{name}_high": value * math.exp(half)}
        made.append(line)
    return made


def share(line: str) -> float:
    return float(line.rpartition(": ")[2].partition(" %")[0].partition("%")[0])


def test_intervals_of_two_standard_errors_hold_the_truth_as_often_as_they_should() -> None:
    # ± 1.96 standard deviations: 95 %, ± 1: 68 %; of 2,000 cells the share is within 3 of its standard errors
    for half, expected in ((0.0196, 95.0), (0.01, 68.3)):
        made = cells(2000, half)
        for name, column in (("step time", "step"), ("paired utilization", "used")):
            error = 300 * math.sqrt(expected / 100 * (1 - expected / 100) / 2000)
            assert abs(share(line_of("all", name, column, made)) - expected) < error


def test_cells_together_hold_the_truth_whatever_their_own_intervals_are() -> None:
    """Independent cells: Student's t of three holds by construction 95 % of the time."""
    made = cells(3000, 1e-6)
    assert share(line_of("all", "step time", "step", made)) < 1
    assert abs(share(line_of("3 together", "step time", "step", made, 3)) - 95) < 300 * math.sqrt(0.05 * 0.95 / 1000)


def test_cells_of_two_placements_have_a_truth_each() -> None:
    """Steps of far cells take 20 % longer: no interval of ± 3 % holds the mean of all, nearly each that of its own."""
    made = cells(200, 0.03)
    for cell in made[100:]:
        for name in ("step", "step_low", "step_high"):
            cell[name] *= 1.2  # type: ignore[operator]
        cell["round_trip"] = 4e-7
    found = {line.split("|")[1].strip(): share(line) for line in report(made) if "step time" in line}
    assert found["all"] == 0
    assert found["near (up to 90 ns)"] > 97
    assert found["far (up to 400 ns)"] > 97


def test_cells_of_a_run_are_as_far_apart_as_a_sweep_has_them() -> None:
    """Of 78 lines two runs: what slowed down every second line is between runs and in neither, what slowed down the
    second half is between repeats of each."""
    alternating, halved = cells(78, 1e-3), cells(78, 1e-3)
    for at in range(78):
        for made, slow in ((alternating, at % 2), (halved, at >= 39)):
            for name in ("used", "used_low", "used_high"):
                made[at][name] *= 1.5 if slow else 1.0  # type: ignore[operator]
    assert widths(alternating) < 0.05 < 0.3 < widths(halved)


def widths(made: list[dict[str, object]]) -> float:
    return max(math.log(each["used_high"] / each["used"]) for each in any_window(made, "used"))  # type: ignore[operator]


def test_the_mean_of_three_repeats_holds_the_truth() -> None:
    """650 means of windows that differ by 1 %: each within t of 26 degrees × 1 % ÷ √3."""
    found = means(cells(1950, 0.01), "used")
    assert len(found) == 650
    assert abs(share(line_of("", "", "used", found)) - 95) < 300 * math.sqrt(0.05 * 0.95 / 650)
    width = sorted(math.log(each["used_high"] / each["used"]) for each in found)[325]
    assert width == pytest.approx(2.056 * 0.01 / math.sqrt(3), rel=0.1)


def test_a_real_cell_has_both_values_with_their_intervals() -> None:
    def work() -> None:
        sum(range(20_000))

    kernel, protocol = CeilingKernel("fp32", "loop", 1000, work), Protocol.for_device("cpu", quick=True)
    cell = one_cell(work, kernel, clock_for("cpu"), protocol)
    assert cell["step_low"] < cell["step"] < cell["step_high"]
    assert cell["used_low"] < cell["used"] < cell["used_high"]
    assert cell["blocks"] + cell["disturbed"] + cell["moved"] >= protocol.min_blocks
