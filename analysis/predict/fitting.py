"""Factors of the step time by least squares of relative errors, never below 0, leaning on a prior.

`scipy.optimize.nnls` solves each of a few rounds, in which rows far off count less (the sum of absolute relative errors
is what shrinks). The prior is a row of its own for each factor: without rows that say something, a factor stays there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from analysis.predict.step_time import ARITHMETIC, LAUNCHES, MEMORY, Numbers, Setting, Terms

PRIOR: Mapping[str, float] = {ARITHMETIC: 1.6, MEMORY: 1.2, LAUNCHES: 0.4}
"""Factors where nothing is known: 63 % of the peak, 83 % of the bandwidth, 4 µs a launch."""

POOL_WEIGHT, SETTING_WEIGHT = 0.02, 0.005
"""Of the prior in a pool, and of the pool's factors in a setting; in rows of a relative error of 1."""

ROUNDS = 5

TOLERANCE = 0.05
"""Relative errors below it count by their square."""

FEWEST = 30
"""Rows of a setting with factors of its own."""


def prior_of(terms: Terms) -> Numbers:
    """The prior factors of these terms."""
    return np.array([PRIOR[what] for what, _ in terms.names])


def factors(design: Numbers, time_s: Numbers, prior: Numbers, weight: float) -> Numbers:
    """Factors of the columns of a design, shape (rows, terms), for these times, shape (rows,)."""
    relative = design / time_s[:, None]
    leaning = np.sqrt(weight) / np.maximum(prior, 0.2)
    rows = np.ones(len(time_s))
    found = prior
    for _ in range(ROUNDS):
        found = _solved(relative * rows[:, None], rows, prior, leaning)
        error = np.abs(relative @ found - 1)
        rows = np.sqrt(TOLERANCE / np.maximum(error, TOLERANCE))
    return found


def _solved(matrix: Numbers, right: Numbers, prior: Numbers, leaning: Numbers) -> Numbers:
    """Non-negative least squares by its normal equations, which are as small as the number of terms."""
    normal = matrix.T @ matrix + np.diag(leaning**2)
    normal[np.diag_indices_from(normal)] += 1e-9 * np.trace(normal) / len(normal)
    upper = cholesky(normal)
    side = solve_triangular(upper, matrix.T @ right + leaning**2 * prior, trans="T")
    found: Numbers = nnls(upper, side, maxiter=100 * len(side))[0]
    return found


def fit_settings(
    design: Numbers, time_s: Numbers, settings: Sequence[Setting], terms: Terms, rows: NDArray[np.bool_] | None = None
) -> dict[str, Numbers]:
    """Factors by `Setting.text`, of each pool and of each setting with enough rows. rows: those that are fitted on."""
    used = np.ones(len(time_s), bool) if rows is None else rows
    found: dict[str, Numbers] = {}
    pools = np.array([setting.pool.text for setting in settings])
    texts = np.array([setting.text for setting in settings])
    for pool in sorted(set(pools[used])):
        of_pool = used & (pools == pool)
        found[pool] = factors(design[of_pool], time_s[of_pool], prior_of(terms), POOL_WEIGHT)
        for text in sorted(set(texts[of_pool])):
            of_setting = of_pool & (texts == text)
            if of_setting.sum() >= FEWEST:
                found[text] = factors(design[of_setting], time_s[of_setting], found[pool], SETTING_WEIGHT)
    return found
