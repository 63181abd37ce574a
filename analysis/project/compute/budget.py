"""What a budget of FLOP buys in a domain whose error falls as a power of its data: data, parameters and error.

The inverse of `analysis/project/frontier/frontier.py`: data → parameters (model size) → width → FLOP of an epoch, which
grows with the data, so that the data of a budget is read off that curve. One epoch, as there. Not claimed: that a curve
holds so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.project.frontier import APART, Domain, Formulas, Numbers, Steps, with_values

Array = NDArray[np.float64]

START = 1e6
"""Data that a curve is followed from where a domain says nothing of today's."""


def error_at(numbers: Numbers, data: Array) -> Array:
    """The error after so much data: from today's error and data where both are known, else by alpha."""
    if "error_now" in numbers and "data_now" in numbers:
        above = (numbers["error_now"] - numbers["floor"]) * (data / numbers["data_now"]) ** numbers["beta_g"]
    else:
        above = numbers["alpha"] * data ** numbers["beta_g"]
    return np.minimum(numbers["guess"], above + numbers["floor"])


def _step_flop(domain: Domain, formulas: Formulas, grown: int) -> float:
    return formulas.at("model_flop", **{**domain.sizes_at(grown), "batch": domain.sub_batch})


class Curve:
    """What budgets buy, read off a curve through parameters in steps of √2; straight in logarithms between its points.

    The numbers of the domain may be draws: a point is a size of the model, whose FLOP a step no such number changes,
    and the data that it is for is another in each draw.
    """

    def __init__(self, domain: Domain, formulas: Formulas) -> None:
        self._domain = domain
        numbers = domain.values()
        start = numbers["sigma"] * numbers.get("data_now", START) ** numbers["beta_p"]
        self._steps = Steps(domain, formulas, start, lambda grown: {"model_flop": _step_flop(domain, formulas, grown)})

    def bought(self, flop: Array, draws: Numbers | None = None) -> dict[str, Array]:
        """data, parameters and error of each budget. draws: of the domain's numbers, as many as budgets, or one.

        Raises ValueError for less than the smallest model takes.
        """
        numbers = with_values(self._domain, draws or {})
        first, last = self._below(flop, numbers), self._above(flop, numbers)
        places = range(first, last + 1)
        ends = np.stack([np.broadcast_to(self._log_flop(place, numbers), flop.shape) for place in places])
        at = np.clip((ends <= np.log(flop)).sum(axis=0) - 1, 0, len(places) - 2)
        low, high = (np.take_along_axis(ends, at[None] + step, axis=0)[0] for step in (0, 1))
        place = first + at + (np.log(flop) - low) / (high - low)
        parameters = self._steps.start * np.exp(place * np.log(APART))
        data = np.asarray((parameters / numbers["sigma"]) ** (1 / np.asarray(numbers["beta_p"])), dtype=np.float64)
        return {"data": data, "parameters": parameters, "error": error_at(numbers, data)}

    def _log_flop(self, place: int, numbers: Numbers) -> Array:
        """Logarithm of the FLOP of an epoch at a place."""
        data = (self._steps.parameters(place) / numbers["sigma"]) ** (1 / np.asarray(numbers["beta_p"]))
        steps = data / numbers["per_sample"] / self._domain.sub_batch
        return np.asarray(np.log(self._steps.point(place)["model_flop"] * steps), dtype=np.float64)

    def _below(self, flop: Array, numbers: Numbers) -> int:
        place = 0
        try:
            while np.any(self._log_flop(place, numbers) > np.log(flop)):
                place -= 1
        except ValueError as fault:
            raise ValueError(f"{np.min(flop):.3g} FLOP are less than the smallest model takes: {fault}") from fault
        return place

    def _above(self, flop: Array, numbers: Numbers) -> int:
        place = 1
        while np.any(self._log_flop(place, numbers) <= np.log(flop)):
            place += 1
        return place
