"""The ratio of times measured in interleaved blocks."""

import math

import numpy as np
import pytest

from analysis.stats import paired_ratio


def test_the_ratio_is_the_geometric_mean_of_the_rounds():
    found = paired_ratio([(4.0, 1.0), (2.0, 1.0), (8.0, 1.0)])
    assert found.ratio == pytest.approx(4.0)
    # by hand: logs 2 ln 2, ln 2, 3 ln 2, no neighbours alike: s = ln 2, t(0.975, 2) = 4.302653, half = t s / sqrt(3)
    half = 4.302652729911275 * math.log(2) / math.sqrt(3)
    assert found.low == pytest.approx(4 * math.exp(-half))
    assert found.high == pytest.approx(4 * math.exp(half))
    assert found.half_width == pytest.approx(half)


def test_sides_that_change_places_invert_it():
    rounds = [(1.0, 1.1), (1.2, 1.15), (0.9, 1.3), (1.0, 1.2)]
    found, other = paired_ratio(rounds), paired_ratio([(b, a) for a, b in rounds])
    assert other.ratio == pytest.approx(1 / found.ratio)
    assert (other.low, other.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_one_round_has_no_interval_and_none_is_refused():
    assert paired_ratio([(1.0, 2.0)]).low is None
    assert paired_ratio([(1.0, 2.0)]).half_width == math.inf
    for rounds in ([], [(0.0, 1.0)], [(1.0, math.nan)]):
        with pytest.raises(ValueError, match="two times above 0"):
            paired_ratio(rounds)


def test_95_in_100_intervals_of_equal_sides_hold_1():
    draws = np.random.default_rng(0)
    sides = np.exp(0.1 * draws.standard_normal((1000, 10, 2)))
    held = sum(found.low <= 1 <= found.high for found in (paired_ratio(list(map(tuple, rounds))) for rounds in sides))
    assert 930 <= held <= 985  # binomial: sd 0.7 %; `summarise` is slightly wide on purpose (0.96)
