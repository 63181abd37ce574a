"""The simulation of the stopping rule, at what is known of it without simulating."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.summary import LAG1, LAG1_RAISED
from benchmarks.paired.stopping import RULES, drawn, of_batch_means, series, stopped


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
    free, bound = (stopped(series(r, 0.03, 1000, 150), truth, 10, RULES[LAG1])[1] for r in (0.0, 0.6))
    assert 0.94 < free < 0.99
    assert 0.82 < bound < 0.90
    assert stopped(series(0.6, 0.03, 1000, 150), truth, 10, RULES[LAG1_RAISED])[1] > bound


def test_a_confirmed_rule_asks_again_after_a_quarter_more_blocks() -> None:
    """Equal blocks are narrow after 8, and again after 10; those that scatter from the ninth on are not."""
    rows = np.ones((2, 40))
    rows[1, 8:] = np.tile([1.0, 3.0], 16)
    share, held, blocks = stopped(rows, 1.0, 8, RULES["lag1 confirmed"])
    assert (share, held, blocks) == (0.5, 1.0, 10.0)


def test_batch_means_by_hand() -> None:
    """Ten blocks: batches of three from the second on, of means 2, 3 and 4: 3 ± t(2) · 1 ÷ √3, on a log scale."""
    low, high = of_batch_means(np.array([[9.0, 1, 2, 3, 2, 3, 4, 3, 4, 5]]))
    width = 4.302652729749462 / np.sqrt(3) / 3
    assert (low[0], high[0]) == pytest.approx((3 * np.exp(-width), 3 * np.exp(width)))


def test_drawn_stretches_go_on_as_the_cells_blocks_did() -> None:
    """Of 100,000 places nine in ten follow the one before, and the mean is the cell's, to four standard errors."""
    times = np.arange(20.0)
    rows = drawn(times, 100, 1000)
    follows = (rows[:, 1:] == (rows[:, :-1] + 1) % 20).mean()
    assert follows == pytest.approx(0.9 + 0.1 / 20, abs=4 * np.sqrt(0.09 / 99_900))
    # at most 2 · 10 neighbours go together: a variance of 33.25 · 20 ÷ 100,000
    assert rows.mean() == pytest.approx(9.5, abs=4 * np.sqrt(33.25 * 20 / 100_000))
