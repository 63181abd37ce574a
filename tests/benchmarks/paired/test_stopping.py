"""The simulation of the stopping rule, at what is known of it without simulating."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.summary import LAG1, LAG1_RAISED
from benchmarks.paired.stopping import series, stopped


def test_series_have_the_correlation_and_the_mean_that_they_should() -> None:
    rows = series(0.6, 0.09, 2000, 50)
    logs = np.log(rows)
    # standard errors: 0.09 ÷ √(100,000 × (1 - 0.6) ÷ (1 + 0.6)) = 0.0006 of the mean, √(0.64 ÷ 100,000) = 0.0025 of r
    assert logs.mean() == pytest.approx(0, abs=0.003)
    assert (logs[:, 1:] * logs[:, :-1]).mean() / 0.09**2 == pytest.approx(0.6, abs=0.02)
    assert rows.mean() == pytest.approx(np.exp(0.09**2 / 2), rel=0.003)


def test_correlated_blocks_are_covered_less() -> None:
    """Of 1,000 series each, a standard error of 0.007 and 0.011: 0.97 and 0.86 of the table in docs/benchmarks.md."""
    truth = np.exp(0.03**2 / 2)
    free, bound = (stopped(series(r, 0.03, 1000, 150), truth, 10, LAG1)[1] for r in (0.0, 0.6))
    assert 0.94 < free < 0.99
    assert 0.82 < bound < 0.90
    assert stopped(series(0.6, 0.03, 1000, 150), truth, 10, LAG1_RAISED)[1] > bound
