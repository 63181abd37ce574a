"""What a budget of FLOP buys in a domain whose error falls as a power of its data: data, parameters and error.

The inverse of `analysis/frontier.py`: data → parameters (model size) → width → FLOP of an epoch, which grows with the
data, so that the data of a budget is found by bisection. One epoch, as there. Not claimed: that the curve holds so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis import scaling
from analysis.domain import Domain
from analysis.frontier import grown_for
from analysis.shipped_formulas import Formulas

Array = NDArray[np.float64]

POINTS = 33
"""Of the curve through which many budgets are read off."""


@dataclass(frozen=True)
class Bought:
    """data: in units of the learning curve; grown: the size that grows; flop: of an epoch over that data."""

    data: float
    parameters: float
    grown: int
    error: float
    flop: float


def at_data(domain: Domain, formulas: Formulas, data: float) -> Bought:
    """A model of the size for so much data, trained once over it. Raises ValueError for less than any model takes."""
    numbers = domain.values()
    parameters = scaling.ModelSize(numbers["sigma"], numbers["beta_p"]).parameters(data)
    grown = grown_for(domain, formulas, parameters)
    flop = formulas.at("model_flop", **{**domain.sizes_at(grown), "batch": domain.sub_batch})
    steps = data / numbers["per_sample"] / domain.sub_batch
    return Bought(data, parameters, grown, error_at(domain, data), flop * steps)


def error_at(domain: Domain, data: float) -> float:
    """The error after so much data: from today's error and data where both are known, else by alpha."""
    numbers = domain.values()
    if "error_now" in numbers and "data_now" in numbers:
        above = (numbers["error_now"] - numbers["floor"]) * (data / numbers["data_now"]) ** numbers["beta_g"]
        return float(min(numbers["guess"], above + numbers["floor"]))
    curve = scaling.LearningCurve(numbers["alpha"], numbers["beta_g"], numbers["floor"], numbers["guess"])
    return curve.error(data)


def bought(domain: Domain, formulas: Formulas, flop: float) -> Bought:
    """What so many FLOP buy, to a thousandth of the data. Raises ValueError for less than the smallest model takes."""
    low, high = _bracket(domain, formulas, flop)
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at_data(domain, formulas, middle).flop <= flop else (low, middle)
    return at_data(domain, formulas, low)


def bought_each(domain: Domain, formulas: Formulas, flop: Array) -> dict[str, Array]:
    """`bought` of many budgets at once: data, parameters and error, read off a curve through `POINTS` of it."""
    ends = [float(np.min(flop)), float(np.max(flop))]
    ends[1] = max(ends[1], ends[0] * 1.01)
    found = [bought(domain, formulas, each) for each in np.geomspace(ends[0], ends[1], POINTS)]
    at = np.log([each.flop for each in found])
    return {
        name: np.exp(np.interp(np.log(flop), at, np.log([getattr(each, name) for each in found])))
        for name in ("data", "parameters", "error")
    }


def _bracket(domain: Domain, formulas: Formulas, flop: float) -> tuple[float, float]:
    """Data of which the first takes no more than these FLOP, and the second more. Raises ValueError."""
    low = domain.values().get("data_now", 1e6)
    for _ in range(200):
        try:
            if at_data(domain, formulas, low).flop <= flop:
                break
        except ValueError as fault:
            raise ValueError(f"{flop:.3g} FLOP are less than the smallest model takes: {fault}") from fault
        low /= 2
    high = 2 * low
    while at_data(domain, formulas, high).flop <= flop:
        low, high = high, 2 * high
    return low, high
