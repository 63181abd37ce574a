"""The overhead benchmark's own arithmetic: pairing, drift, verdict; and that both loops train the same thing."""

from __future__ import annotations

import pytest

from benchmarks.overhead import paired_ratios, verdict


class Drifting:
    """Steps whose time grows by the same amount at each call; a clock that moves with them."""

    def __init__(self, growth_s: float) -> None:
        self.now_s, self.calls, self.growth_s = 0.0, 0, growth_s

    def wall_s(self) -> float:
        return self.now_s

    def loop(self, factor: float):
        def seconds(steps: int) -> float:
            self.calls += 1
            self.now_s += 1.0
            return factor * (1.0 + self.growth_s * self.calls)

        return seconds


def test_a_steady_drift_does_not_move_the_ratio():
    machine = Drifting(0.01)
    ratios = list(paired_ratios(machine.loop(1.0), machine.loop(1.0), 5, machine, 40.0))
    assert len(ratios) == 10  # four blocks of 1 s each
    assert ratios == pytest.approx([1.0] * 10)


@pytest.mark.parametrize(
    ("ratios", "says"),
    [
        ([1.0, 1.001, 0.999, 1.0, 1.0, 1.002], "met"),
        ([1.05, 1.051, 1.049, 1.05, 1.06, 1.05], "missed"),
        ([0.9, 1.1, 0.95, 1.06, 1.0, 1.0], "neither shown nor refuted"),
    ],
)
def test_the_verdict_needs_the_whole_interval(ratios, says):
    said, missed = verdict(ratios)
    assert said.endswith(f"goal at most 1.01: {says}")
    assert missed is (says == "missed")
