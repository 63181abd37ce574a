"""Intervals around a predicted time whose coverage was counted: split conformal, by group.

The score of a row is log(measured ÷ predicted), of a prediction whose fit had not seen the row's family. A group is
what is alike in how far predictions are off: mode and way of running, and the ground that the model stands on. The
interval of a group runs from the lower to the upper quantile of its scores, with the correction of weighted conformal
prediction for a finite number of scores (Tibshirani et al. 2019, "Conformal prediction under covariate shift").

Rows of one family are not exchangeable with those of another: what is claimed is the coverage that was counted on
families left out, with an interval by resampling families.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.predict.operation_amounts import GROUPED, TRANSPOSED
from analysis.predict.step_time import Numbers, TimePart

NOMINAL, THIN_NOMINAL = 0.9, 0.95

DEVICE_NOMINAL = 0.95
"""Of the rows of each device that a device that was not measured is judged by: with NOMINAL, the intervals made from
the others held 83 % of the rows of one of three."""

GROUND, THIN = "measured widely", "measured thinly"

THIN_KINDS = (GROUPED, TRANSPOSED, "recurrent", "attention backward")
"""Kinds of operations of which few families have many: time in them says little about another family."""

THIN_SHARE = 0.1
"""Of the predicted time in such kinds, from which on a model stands on thin ground."""

FEWEST, FEWEST_FAMILIES = 60, 3
"""Scores, and families, of a group with an interval of its own."""


def ground_of(parts: Sequence[TimePart]) -> str:
    """The ground that a model's prediction stands on."""
    total = sum(part.time_s for part in parts)
    thin = sum(part.time_s for part in parts if part.name.startswith(THIN_KINDS))
    return THIN if total and thin / total > THIN_SHARE else GROUND


@dataclass(frozen=True)
class Interval:
    """Factors of a predicted time: low ≤ measured ÷ predicted ≤ high, in so many of ten rows as NOMINAL says."""

    low: float
    high: float
    scores: int


def conformal(scores: Numbers, families: NDArray[np.str_], nominal: float = NOMINAL) -> Interval:
    """The interval of a group from its scores and the family of each, shape (rows,).

    A family weighs as the root of its rows, between equal weights of rows and equal weights of families; one more
    score beyond either end weighs as the largest does.
    """
    _, place, counts = np.unique(families, return_inverse=True, return_counts=True)
    weights = counts[place] ** -0.5
    order = np.argsort(scores)
    ordered, share = scores[order], np.cumsum(weights[order])
    total, tail = share[-1] + weights.max(), (1 - nominal) / 2
    low = int(np.searchsorted(share, tail * total)) - 1
    high = int(np.searchsorted(share, (1 - tail) * total))
    return Interval(
        float(np.exp(ordered[low])) if low >= 0 else 0.0,
        float(np.exp(ordered[high])) if high < len(ordered) else math.inf,
        len(scores),
    )


def nominal_of(group: str) -> float:
    """What is asked of a group's interval: more on thin ground, where families differ most."""
    return THIN_NOMINAL if group.endswith(THIN) else NOMINAL


def by_group(scores: Numbers, groups: NDArray[np.str_], families: NDArray[np.str_]) -> dict[str, Interval]:
    """The interval of each group with enough scores, and of all scores under ""."""
    found = {"": conformal(scores, families, THIN_NOMINAL)}
    for group in sorted(set(groups)):
        of_group = groups == group
        if of_group.sum() >= FEWEST and len(set(families[of_group])) >= FEWEST_FAMILIES:
            found[str(group)] = conformal(scores[of_group], families[of_group], nominal_of(str(group)))
    return found


def device_interval(scores: Numbers, devices: NDArray[np.str_], nominal: float = DEVICE_NOMINAL) -> Interval:
    """The interval on a device that was not measured: as far to either side as the worst of these devices needs.

    scores: of rows predicted by the rates of other devices, shape (rows,). A device is faster or slower as a whole, and
    few were measured: that the next one is no farther off than the worst is all that can be said.
    """
    reach = max(float(np.quantile(np.abs(scores[devices == name]), nominal)) for name in set(devices))
    return Interval(math.exp(-reach), math.exp(reach), len(scores))


def covered(scores: Numbers, groups: NDArray[np.str_], intervals: Mapping[str, Interval]) -> NDArray[np.bool_]:
    """Which scores lie in the interval of their group."""
    chosen = [intervals.get(str(group), intervals[""]) for group in groups]
    low = np.log([max(each.low, 1e-300) for each in chosen])
    high = np.log([min(each.high, 1e300) for each in chosen])
    return (low <= scores) & (scores <= high)


def coverage_interval(inside: NDArray[np.bool_], clusters: NDArray[np.str_], seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of a coverage, by resampling whole clusters (families, or devices) 2,000 times."""
    names = sorted(set(clusters))
    of_each = np.array([(inside[clusters == name].sum(), (clusters == name).sum()) for name in names], float)
    drawn = np.random.default_rng(seed).integers(0, len(names), (2000, len(names)))
    sums = of_each[drawn].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    return float(low), float(high)
