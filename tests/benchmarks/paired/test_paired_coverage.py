"""The shares that `benchmarks.paired.coverage` reports, of cells whose intervals are known."""

import math
import random

from benchmarks.paired.coverage import line_of, report


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
