"""The benchmark of profiles: its table and verdicts of made-up times, and a way that cannot run."""

from __future__ import annotations

from benchmarks.profile import Subject, lines, measure

FOUND: dict[str, list[float] | str] = {
    "forward, no gradients": [2.0, 2.0, 9.0],
    "ours, forward": [2.2, 2.0, 2.1],
    "forward, gradients": [3.0],
    "deepspeed, forward": [4.2],
    "training": [10.0],
    "ours, training": [12.0],
    "ours, table alone": [0.5],
    "runtime estimator": "RuntimeError: no GPU",
}


def test_a_profile_is_told_by_the_steps_that_it_measures():
    """2.1 ÷ 2.0 of the medians: one slow run decides nothing; spread: (9 - 2) ÷ 2."""
    rows = {line[15:39].strip(): line.split() for line in lines("resnet18", FOUND)}
    assert rows["ours, forward"][-3:] == ["2.100", "1.050", "10%"]
    assert rows["deepspeed, forward"][-3:] == ["4.200", "1.400", "0%"]
    assert rows["forward, no gradients"][-2:] == ["2.000", "350%"]
    assert rows["runtime estimator"][-4:] == ["–", "RuntimeError:", "no", "GPU"]


def test_a_way_that_cannot_run_is_told_and_the_others_go_on():
    subject = Subject("alexnet", 1, 64, 1)
    ways = {"ours, table alone": subject.ways()["ours, table alone"], "broken": lambda: 1 / 0, "own": lambda: 7.0}
    subject.ways = lambda: ways  # type: ignore[method-assign]
    found = measure(subject, 2)
    assert len(found["ours, table alone"]) == 2
    assert found["broken"] == "ZeroDivisionError: division by zero"
    assert found["own"] == [7.0, 7.0]  # it has timed itself
