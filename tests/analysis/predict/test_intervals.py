"""Intervals: quantiles by hand, coverage of rows that are exchangeable, and none where the scores are too few."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.predict import TimePart
from analysis.predict.intervals import (
    GROUND,
    THIN,
    by_group,
    conformal,
    coverage_interval,
    covered,
    device_interval,
    ground_of,
)


def test_the_quantiles_of_99_scores():
    """One family, 99 scores: with the one that is to come 100, of which 5 may be below and 5 above."""
    scores = np.log(np.arange(1, 100.0))
    found = conformal(scores, np.full(99, "a"))
    assert (found.low, found.high) == (pytest.approx(5, abs=1.01), pytest.approx(95, abs=1.01))
    assert found.scores == 99


def test_too_few_scores_bound_nothing():
    found = conformal(np.zeros(5), np.full(5, "a"))
    assert (found.low, found.high) == (0.0, math.inf)


def test_a_large_family_weighs_as_the_root_of_its_rows():
    """900 scores of one family weigh as much as 30 families of one score: the 90 % interval needs the others'."""
    scores = np.concatenate([np.full(900, 0.0), np.full(30, 1.0)])
    families = np.array(["large"] * 900 + [f"small {place}" for place in range(30)])
    assert conformal(scores, families).high == pytest.approx(math.e)
    assert conformal(scores, np.full(930, "large")).high == pytest.approx(1.0)


def test_exchangeable_rows_are_covered_as_often_as_asked():
    rng = np.random.default_rng(0)
    families = np.repeat([f"f{place}" for place in range(100)], 20)
    groups = np.full(2000, "train | measured widely")
    inside = [
        covered(rng.normal(size=2000), groups, by_group(rng.normal(size=2000), groups, families)).mean()
        for _ in range(20)
    ]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_coverage_is_resampled_by_cluster():
    """Ten clusters that are inside or outside as a whole leave much open; as many rows alone do not."""
    clusters = np.repeat([f"c{place}" for place in range(10)], 100)
    inside = np.repeat([True] * 9 + [False], 100)
    low, high = coverage_interval(inside, clusters)
    assert low < 0.75
    assert high == 1.0
    narrow = coverage_interval(inside, np.arange(1000).astype(str))
    assert narrow[1] - narrow[0] < 0.05


def test_a_device_interval_is_as_wide_as_the_worst_needs():
    scores = np.concatenate([np.full(100, -0.1), np.full(100, 0.5)])
    found = device_interval(scores, np.repeat(["a", "b"], 100))
    assert (found.low, found.high) == (pytest.approx(math.exp(-0.5)), pytest.approx(math.exp(0.5)))


@pytest.mark.parametrize(("far", "high"), [(4, 0.1), (6, 1.0)])
def test_a_device_interval_holds_95_of_100_rows_of_the_worst(far, high):
    scores = np.concatenate([np.zeros(100), np.full(100 - far, 0.1), np.full(far, 1.0)])
    assert device_interval(scores, np.repeat(["a", "b"], 100)).high == pytest.approx(math.exp(high), rel=0.01)


def test_thin_ground_is_a_tenth_of_the_time_in_kinds_of_few_families():
    parts = [TimePart("memory", "pointwise", 0.89, 1.0), TimePart("arithmetic", "grouped convolution ≤16", 0.11, 3.0)]
    assert ground_of(parts) == THIN
    assert ground_of(parts[:1]) == GROUND
    assert ground_of([]) == GROUND
