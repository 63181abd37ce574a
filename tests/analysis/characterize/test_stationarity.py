"""A series' spread and trend against scipy, against counting every order, and against what chance does."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from analysis.characterize.stationarity import kendall_s, mann_kendall, sen_slope, stationarity


def test_the_exact_probability_is_a_count_of_all_orders():
    series = [3.0, 1.0, 4.0, 5.0, 2.0]
    s = abs(kendall_s(series))
    orders = list(itertools.permutations(range(5)))
    as_far = sum(abs(kendall_s(order)) >= s for order in orders)
    assert mann_kendall(series) == pytest.approx(as_far / len(orders))


def test_s_by_hand():
    assert kendall_s([1, 2, 3, 4]) == 6
    assert kendall_s([4, 3, 2, 1]) == -6
    assert kendall_s([1, 3, 2, 2]) == 3 - 2  # three values above 1; 3 above both 2; a tie counts nothing
    assert mann_kendall([1, 2, 3, 4]) == pytest.approx(2 / 24)  # the two monotone of 24 orders
    assert mann_kendall([1, 2, 3]) is None


@pytest.mark.parametrize("n", [6, 20, 60])
def test_scipy_says_the_same(n: int):
    from scipy import stats

    numbers = random.Random(n)
    series = [1 + 0.02 * place / n + 0.05 * numbers.gauss(0, 1) for place in range(n)]
    theirs = stats.kendalltau(range(n), series, method="exact" if n <= 50 else "asymptotic").pvalue
    assert mann_kendall(series) == pytest.approx(theirs, rel=1e-9 if n <= 50 else 0.05)  # scipy corrects no continuity
    slope, low, high = sen_slope(series) or (0, 0, 0)
    assert slope == pytest.approx(stats.theilslopes(series).slope)
    assert low <= slope <= high


def test_chance_is_called_a_trend_one_time_in_twenty_and_covered_nineteen():
    numbers = random.Random(1)
    series = [[numbers.gauss(5, 1) for _ in range(10)] for _ in range(600)]
    called = sum(mann_kendall(one) < 0.05 for one in series)  # type: ignore[operator]
    covered = sum(found[1] <= 0 <= found[2] for one in series if (found := sen_slope(one)))
    assert 12 <= called <= 48
    assert covered >= 0.93 * len(series)


def test_a_trend_is_told_over_the_whole_series():
    found = stationarity([1.0 + 0.01 * place for place in range(11)])
    assert found.trend_ratio == pytest.approx(0.1 / 1.05)
    assert found.verdict == "slower"
    assert stationarity([2.0 - 0.01 * place for place in range(11)]).verdict == "faster"
    assert stationarity([1.0, 1.2, 1.1]).verdict == "unknown"


def test_equal_steps_are_steady_and_one_slow_step_is_no_trend():
    equal = stationarity([0.5] * 8)
    assert (equal.spread_ratio, equal.p_value, equal.verdict) == (0, 1.0, "steady")
    slow = stationarity([1.0, 1.1, 0.9, 1.05, 30.0, 0.95, 1.02, 0.98])
    assert slow.verdict == "steady"


def test_spread_and_its_interval_of_a_normal_sample():
    """χ² of 9 degrees: 2.700 and 19.023 (tables), so s · √(9/19.023) = 0.688 s to s · √(9/2.700) = 1.826 s."""
    series = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0, 1.1, 0.9, 1.05, 0.95]
    found = stationarity(series)
    spread = statistics.stdev(series) / statistics.mean(series)
    assert found.spread_ratio == pytest.approx(spread)
    assert (found.spread_low, found.spread_high) == (
        pytest.approx(0.688 * spread, rel=1e-3),
        pytest.approx(1.826 * spread, rel=1e-3),
    )


def test_what_is_no_time_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        stationarity([0.0, 0.0])
    with pytest.raises(ValueError, match="at least one"):
        stationarity([])
