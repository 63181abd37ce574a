"""The simulated cells of `benchmarks.paired.interleaving`, at what is known of them without simulating."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from benchmarks.paired.interleaving import ALONE, APART, FIXED, WAYS, Scatter, scatter_of_a_second, simulated
from results.records.samples import Sample


def block(lasts_s: float, steps: int, part: str = "measure") -> Sample:
    return Sample(part=part, steps=steps, start_s=0.0, wall_s=lasts_s)


def test_scatter_of_a_second_is_that_of_independent_steps_whatever_their_blocks_are() -> None:
    """Steps of 50 ms that scatter by 10 %: a mean of one second is of 20 steps, 10 % ÷ √20, in blocks of 4 as of 25."""
    chance = random.Random(0)
    for steps in (4, 25):
        blocks = [block(sum(chance.gauss(0.05, 0.005) for _ in range(steps)), steps) for _ in range(4000)]
        for first in (0, 1):
            # the standard error of a standard deviation of n pairs is 1 ÷ √(2 n) of it
            assert scatter_of_a_second(blocks, first) == pytest.approx(0.1 / math.sqrt(20), rel=3 / math.sqrt(2 * 2000))


def test_drift_and_blocks_that_were_set_aside_are_no_scatter() -> None:
    """Each pair is 1 % slower than the one before; within a pair nothing differs."""
    drifting = [block(1.01 ** (n // 2), 1) for n in range(20)]
    assert scatter_of_a_second(drifting, 0) == 0
    assert scatter_of_a_second(drifting, 1) == pytest.approx(math.log(1.01) / math.sqrt(2), rel=0.1)
    slow = [*drifting, block(9.0, 1, "disturbed"), block(2.0, 1)]
    assert scatter_of_a_second(slow, 0) == 0
    assert scatter_of_a_second(drifting[:4], 0) is None


def test_a_cell_without_scatter_takes_the_least_time_and_each_way_its_share() -> None:
    """Steps of 0.5 s, calls of 10.3 ms: five blocks. Beside each, 40 ms are 5 calls with 5 % to spare, a fifth is 11;
    two calls come first and one before each block. Apart, the kernel has blocks of 21 calls until 2 s are full: ten."""
    cell, call_s = Scatter(step_s=0.5, step=0.0, call_s=0.0103, call=0.0), 0.0103
    expected = {
        ALONE: 2.5,
        APART: 2.5 + 10 * 21 * call_s,
        FIXED: 2.5 + 5 * (1 + 5) * call_s + 2 * call_s,
        "a fifth": 2.5 + 5 * (1 + 11) * call_s + 2 * call_s,
    }
    for way, took_s in expected.items():
        found = simulated(cell, way, 0)
        untimed_s = {ALONE: 0.5, APART: 0.5 + call_s}.get(way, 0.0)  # one step or call, to know how long it takes
        assert found["took_s"] - untimed_s == pytest.approx(took_s), way
        assert found["status"] == "ok"
        assert found["used"] == pytest.approx(1.0 if way == ALONE else call_s / 0.5)


def test_intervals_hold_the_truth_of_cells_that_scatter() -> None:
    cell = Scatter(step_s=0.3, step=0.02, call_s=0.01, call=0.1)
    for way in WAYS[1:]:
        held = fmean(simulated(cell, way, seed)["held"] for seed in range(12))
        assert held > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 12), way
