"""The sequential test: its alarm rate over all looks, what it finds, and when it looks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import stdtrit

from analysis.stats import ABOVE, BELOW, OPEN, is_look, look_sizes, sequential, sequential_ratio

STREAMS = 400
LONGEST = 60


def stream(
    chance: np.random.Generator, correlation: float, log_ratio: float = 0.0, spread: float = 0.02
) -> list[float]:
    """A first-order autoregression of LONGEST values with this mean."""
    noise = chance.standard_normal(LONGEST)
    values = [noise[0]]
    for each in noise[1:]:
        values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * each)
    return [log_ratio + spread * value for value in values]


def ever(values: Sequence[float], limit_ratio: float = 0.0, wanted: tuple[str, ...] = (ABOVE, BELOW)) -> int:
    """After how many values it is said first; 0: never."""
    for size in look_sizes(len(values)):
        found = sequential_ratio(values[:size])
        assert found is not None
        if found.beyond(limit_ratio) in wanted:
            return size
    return 0


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.02), (0.2, 0.04), (0.4, 0.075)])
def test_equal_sides_raise_an_alarm_as_rarely_as_stated(correlation: float, most: float) -> None:
    """5 % is stated; at 400 streams a rate of 5 % shows up to 7.5 % by chance (mean + 2.3 standard errors)."""
    chance = np.random.default_rng(7)
    alarms = sum(ever(stream(chance, correlation)) > 0 for _ in range(STREAMS))
    assert alarms / STREAMS <= most


def test_one_interval_looked_at_again_and_again_would_raise_more_alarms() -> None:
    """The same streams by a plain 95 % interval at each look: what the spending is for."""
    from analysis.stats import summarise

    chance = np.random.default_rng(7)
    alarms = 0
    for _ in range(STREAMS):
        values = stream(chance, 0.0)
        found = [summarise(values[:size], signed=True) for size in look_sizes(LONGEST)]
        alarms += any((each.low or 0.0) > 0 or (each.high or 0.0) < 0 for each in found)
    assert alarms / STREAMS > 0.08


@pytest.mark.parametrize(("slower", "by"), [(0.05, 40), (0.10, 19)])
def test_a_planted_difference_is_found(slower: float, by: int) -> None:
    """Of values that scatter by 2 %, beyond a limit of 2 %."""
    chance = np.random.default_rng(3)
    found = [ever(stream(chance, 0.0, math.log1p(slower)), 0.02, (ABOVE,)) for _ in range(100)]
    assert all(0 < size <= by for size in sorted(found)[:95])


def test_it_says_that_nothing_is_slower_by_more_than_the_limit() -> None:
    found = sequential_ratio([0.001, -0.001, 0.0, 0.002, -0.002, 0.0])
    assert found is not None
    assert found.beyond(0.02) == BELOW
    assert found.beyond(0.0) == OPEN
    assert found.pairs == 6
    assert found.looks == 1


def test_the_interval_by_hand() -> None:
    """Six values without correlation, of which one is cut at each end; four are left, and all Winsorised are ± 1 %.

    n_eff = 6 (1 - r) ÷ (1 + r) from r = 1/3 ÷ √6; Yuen's error is s ÷ (4/6) ÷ √n_eff with the variance of a sample, as
    n = 6 counts for n_eff; t at 0.05 ÷ 2 two-sided with the degrees of the four. The far values do not count.
    """
    from scipy.stats import t

    values = [0.01, -0.01, 0.01, -5.0, 7.0, -0.01]
    shrink = (1 - 1 / 3 / math.sqrt(6)) / (1 + 1 / 3 / math.sqrt(6))
    error = math.sqrt(1e-4 / (6 * shrink - 1)) / (4 / 6)
    half = t.ppf(1 - 0.0125, 4 * shrink - 1) * error
    found = sequential_ratio(values)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((math.exp(-half), math.exp(half)))
    assert (found.ratio, found.far) == (1.0, 2)


@pytest.mark.parametrize("tails", ["t2", "cauchy", "one in ten is 20 times as far"])
def test_long_tails_raise_no_more_alarms_and_hide_no_slow_down(tails: str) -> None:
    """Scatter of 2 %: an interval of the mean finds 10 % slower in a fifth of the streams of Cauchy's distribution."""
    chance = np.random.default_rng(11)
    draw = {
        "t2": lambda: chance.standard_t(2, LONGEST),
        "cauchy": lambda: chance.standard_cauchy(LONGEST),
        "one in ten is 20 times as far": lambda: (
            chance.standard_normal(LONGEST) * np.where(chance.random(LONGEST) < 0.1, 20, 1)
        ),
    }[tails]
    streams = [list(0.02 * draw()) for _ in range(STREAMS)]
    assert sum(ever(values) > 0 for values in streams) / STREAMS <= 0.02
    slower = [[value + math.log1p(0.1) for value in values] for values in streams]
    assert sum(ever(values, 0.02, (ABOVE,)) > 0 for values in slower) / STREAMS >= 0.98


def test_far_values_are_those_beyond_six_deviations_or_three_per_cent() -> None:
    """Deviations of the seven from 0 have a median of 1 %: 6 × 1.4826 × 1 % = 8.9 % is the limit; of equal ones 3 %."""

    def far(*values: float) -> int:
        found = sequential_ratio(values, out_of_time=True)
        assert found is not None
        return found.far

    assert far(0.0, 0.01, -0.01, 0.01, -0.01, 0.088, -0.088) == 0
    assert far(0.0, 0.01, -0.01, 0.01, -0.01, 0.088, -0.09) == 1
    assert (far(0, 0, 0, 0, 0, 0.029), far(0, 0, 0, 0, -0.031, 0.031)) == (0, 2)


def test_neighbours_that_follow_each_other_leave_few_independent_values() -> None:
    """400 values of a ramp: the correlation counts as 0.95, so that n values are worth 0.05 ÷ 1.95 n.

    The 80 lowest and highest are drawn in to the next value; the 240 between them are worth 6.15.
    """
    drawn_in = [min(max(each, 80), 319) / 400 for each in range(400)]
    error = math.sqrt(statistics.pvariance(drawn_in) / (400 * 0.05 / 1.95 - 1)) / (240 / 400)
    expected = float(stdtrit(240 * 0.05 / 1.95 - 1, 0.975)) * error
    middle, half = sequential._interval([each / 400 for each in range(400)], 0.05)
    assert (middle, half) == pytest.approx((199.5 / 400, expected))


def test_looks_are_few_and_between_them_nothing_changes() -> None:
    assert look_sizes(60) == (6, 9, 13, 19, 27, 38, 54)
    assert (is_look(9), is_look(10)) == (True, False)
    values = [0.01 * (i % 3) for i in range(12)]
    assert sequential_ratio(values[:5]) is None
    assert sequential_ratio(values) == sequential_ratio(values[:9])
    ended = sequential_ratio(values, out_of_time=True)
    assert ended is not None
    assert (ended.pairs, ended.looks) == (12, 3)
    assert sequential_ratio(values[:5], out_of_time=True) is None


def test_equal_values_have_no_width_and_an_alarm_rate_is_one() -> None:
    found = sequential_ratio([0.1] * 6)
    assert found is not None
    assert found.low == pytest.approx(math.exp(0.1)) == found.high
    with pytest.raises(ValueError, match="expected an alarm rate between 0 and 1, got 0"):
        sequential_ratio([0.1] * 6, alarm_ratio=0)
