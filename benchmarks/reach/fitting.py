"""Factors of the step time by least squares of relative errors, never below 0, leaning on a prior.

`scipy.optimize.nnls` solves each of a few rounds, in which rows far off count less (the sum of absolute relative errors
is what shrinks). The prior is a row of its own for each factor: without rows that say something, a factor stays there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from analysis.devices.peaks import lookup
from analysis.reach.step_time import (
    ARITHMETIC,
    COMPILED,
    LAUNCHES,
    MEMORY,
    DatasheetRates,
    Setting,
    StepAmounts,
    Terms,
    kind_of_class,
    machine_of,
)
from benchmarks.reach.counting import StepKey

Numbers = NDArray[np.float64]
Steps = Mapping[StepKey, Mapping[str, StepAmounts]]

PRIOR: Mapping[str, float] = {ARITHMETIC: 1.6, MEMORY: 1.2, LAUNCHES: 0.4}
"""Factors where nothing is known: 63 % of the peak, 83 % of the bandwidth, 4 µs a launch."""

POOL_WEIGHT, SETTING_WEIGHT = 0.02, 0.005
"""Of the prior in a pool, and of the pool's factors in a setting; in rows of a relative error of 1."""

ROUNDS = 5

TOLERANCE = 0.05
"""Relative errors below it count by their square."""

FEWEST = 30
"""Rows of a setting with factors of its own."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that a model is fitted to and compared with, all eager or all compiled.

    design: the terms of each row at the datasheet's rates, s, shape (rows, terms). rows has columns `pool` and
    `setting`: the texts by which factors are named, a setting's with its framework.
    """

    rows: pd.DataFrame
    terms: Terms
    design: Numbers

    @property
    def time_s(self) -> Numbers:
        return self.rows["step_time_s"].to_numpy(float)


def sample(rows: pd.DataFrame, steps: Steps, run: str) -> Sample:
    """The rows of timm in autocast whose amounts are known, of a way of running: EAGER or COMPILED."""
    rows = rows[(rows["source_name"] == "timm") & rows["precision"].str.startswith("amp-") & (rows["family"] != "")]
    rows = rows[rows["compiled"] == (run == COMPILED)]
    rows = rows[[key in steps for key in keys_of(rows)]]
    keys, settings = (
        keys_of(rows),
        [(Setting(row.mode, row.layout, bool(row.compiled), row.device, row.precision)) for row in rows.itertuples()],
    )
    terms = terms_of([steps[key][run] for key in set(keys)])
    machines = [row_machine(row) for row in rows.itertuples()]
    batches = rows["batch_size"].astype(int)
    design = [terms.row(steps[key][run], *each) for key, *each in zip(keys, batches, machines, strict=True)]
    texts = [f"{setting.text} | {name}" for setting, name in zip(settings, rows["framework"], strict=True)]
    rows = rows.assign(pool=[setting.pool.text for setting in settings], setting=texts)
    return Sample(rows, terms, np.array(design).reshape(len(rows), len(terms.names)))


def keys_of(rows: pd.DataFrame) -> list[StepKey]:
    """The step of each row."""
    return [StepKey(row.counted_model, int(row.image_size or 0), row.mode) for row in rows.fillna(0).itertuples()]


def row_machine(row: Any) -> DatasheetRates:
    device = lookup(row.device)
    assert device is not None
    return machine_of(device, row.precision)


def terms_of(steps: Sequence[StepAmounts]) -> Terms:
    """The terms of a fit on these steps."""
    classes = sorted({(name, each.flop != (0.0, 0.0)) for step in steps for name, each in step.items()})
    arithmetic = sorted({name for name, has_flop in classes if has_flop})
    kinds = sorted({kind_of_class(name) for name, _ in classes})
    return Terms((*((ARITHMETIC, name) for name in arithmetic), *((MEMORY, kind) for kind in kinds), (LAUNCHES, "")))


def fit_settings(data: Sample, used: NDArray[np.bool_]) -> dict[str, Numbers]:
    """Factors of each pool and of each setting with enough rows, by its text. used: the rows that are fitted on."""
    fitted: dict[str, Numbers] = {}
    prior = np.array([PRIOR[what] for what, _ in data.terms.names])
    for pool, of_pool in data.rows[used].groupby("pool"):
        fitted[str(pool)] = _factors_of(data, of_pool, prior, POOL_WEIGHT)
        for setting, of_setting in of_pool.groupby("setting"):
            if len(of_setting) >= FEWEST:
                fitted[str(setting)] = _factors_of(data, of_setting, fitted[str(pool)], SETTING_WEIGHT)
    return fitted


def _factors_of(data: Sample, rows: pd.DataFrame, prior: Numbers, weight: float) -> Numbers:
    return factors(data.design[data.rows.index.isin(rows.index)], rows["step_time_s"].to_numpy(float), prior, weight)


def factors(design: Numbers, time_s: Numbers, prior: Numbers, weight: float) -> Numbers:
    """Factors of the columns of a design, shape (rows, terms), for these times, shape (rows,)."""
    relative = design / time_s[:, None]
    leaning = np.sqrt(weight) / np.maximum(prior, 0.2)
    rows = np.ones(len(time_s))
    fitted = prior
    for _ in range(ROUNDS):
        fitted = _solution(relative * rows[:, None], rows, prior, leaning)
        error = np.abs(relative @ fitted - 1)
        rows = np.sqrt(TOLERANCE / np.maximum(error, TOLERANCE))
    return fitted


def _solution(matrix: Numbers, right: Numbers, prior: Numbers, leaning: Numbers) -> Numbers:
    """Non-negative least squares by its normal equations, which are as small as the number of terms."""
    normal = matrix.T @ matrix + np.diag(leaning**2)
    normal[np.diag_indices_from(normal)] += 1e-9 * np.trace(normal) / len(normal)
    upper = cholesky(normal)
    side = solve_triangular(upper, matrix.T @ right + leaning**2 * prior, trans="T")
    solution: Numbers = nnls(upper, side, maxiter=100 * len(side))[0]
    return solution
