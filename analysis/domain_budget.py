"""What a budget of FLOP buys in a domain whose error falls as a power of its data: data, parameters and error.

The inverse of `analysis/frontier.py`: data → parameters (model size) → width → FLOP of an epoch, which grows with the
data, so that the data of a budget is read off that curve. One epoch, as there. Not claimed: that a curve holds so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis import scaling
from analysis.domain import Domain
from analysis.frontier import grown_for
from analysis.shipped_formulas import Formulas

Array = NDArray[np.float64]

START = 1e6
"""Data that a curve is followed from where a domain says nothing of today's."""


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


class Curve:
    """What budgets buy, read off a curve through data in steps of √2; straight in logarithms between its points."""

    def __init__(self, domain: Domain, formulas: Formulas) -> None:
        self._domain, self._formulas = domain, formulas
        self._start = domain.values().get("data_now", START)
        self._points: dict[int, Bought] = {}

    def bought(self, flop: Array) -> dict[str, Array]:
        """data, parameters and error of each budget. Raises ValueError for less than the smallest model takes."""
        first, last = self._below(float(np.min(flop))), self._above(float(np.max(flop)))
        points = [self._point(place) for place in range(first, last + 1)]
        at = np.log([point.flop for point in points])
        return {
            name: np.exp(np.interp(np.log(flop), at, np.log([getattr(point, name) for point in points])))
            for name in ("data", "parameters", "error")
        }

    def _point(self, place: int) -> Bought:
        if place not in self._points:
            self._points[place] = at_data(self._domain, self._formulas, self._start * 2 ** (place / 2))
        return self._points[place]

    def _below(self, flop: float) -> int:
        place = 0
        try:
            while self._point(place).flop > flop:
                place -= 1
        except ValueError as fault:
            raise ValueError(f"{flop:.3g} FLOP are less than the smallest model takes: {fault}") from fault
        return place

    def _above(self, flop: float) -> int:
        place = 0
        while self._point(place).flop <= flop:
            place += 1
        return place
