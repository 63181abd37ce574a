"""A domain's projection over draws of its numbers: what `analysis/project/frontier/frontier.py` says of one set, of
thousands at once.

A step's costs are exact at sizes whose parameters are √2 apart and read off between them, straight in logarithms; all
else is the same arithmetic on arrays. A number with ends is drawn between them (`analysis/stats/intervals.py`, `Ends`),
independent of the others, and what is measured or given has its own distribution. Not claimed: that a curve's numbers
are independent of each other, which those of one fit are not; the box of `frontier.spread` is the wider answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.project.frontier.accelerator import Accelerator
from analysis.project.frontier.domain import Domain
from analysis.project.frontier.frontier import cost_of, grown_for
from analysis.project.frontier.prices import running_costs
from analysis.project.frontier.shipped_formulas import Formulas
from analysis.stats import Ends, Input

Array = NDArray[np.float64]
Numbers = Mapping[str, Array | float]

APART = math.sqrt(2)
"""Parameters of neighbouring sizes."""

SECONDS_PER_HOUR = 3600


class Steps:
    """What a step costs at any number of parameters from the exact ones at `start` · √2 ^ place.

    of: width → quantity → its value, above 0.
    """

    def __init__(self, domain: Domain, formulas: Formulas, start: float, of: Callable[[int], Mapping[str, float]]):
        self._domain, self._formulas, self.start, self._of = domain, formulas, start, of
        self._points: dict[int, Mapping[str, float]] = {}

    def at(self, parameters: Array) -> dict[str, Array]:
        """Each quantity. Raises ValueError as `grown_for` does for sizes that the model has not."""
        wanted = np.log(parameters / self.start) / math.log(APART)
        places = list(range(math.floor(round(wanted.min(), 9)), math.ceil(round(wanted.max(), 9)) + 1))
        points = [self.point(place) for place in places]
        return {
            name: np.exp(np.interp(wanted, places, np.log([point[name] for point in points]))) for name in points[0]
        }

    def point(self, place: int) -> Mapping[str, float]:
        """Exact, at the width that has nearest to so many parameters."""
        if place not in self._points:
            grown = grown_for(self._domain, self._formulas, self.parameters(place))
            self._points[place] = {"grown": float(grown), **self._of(grown)}
        return self._points[place]

    def parameters(self, place: int) -> float:
        """Of a place."""
        return float(self.start * APART**place)


@dataclass(frozen=True)
class Training:
    """devices: that train together, each with a sub-batch of its own; epochs: over the data.

    reduce_s: seconds that a step waits for gradients of so many parameters, None for no other device.
    """

    devices: int = 1
    epochs: float = 1.0
    reduce_s: Callable[[float], float] | None = None


def domain_inputs(domain: Domain) -> dict[str, Input]:
    """The domain's numbers that have an interval."""
    return {name: Ends(*domain.numbers[name]) for name in domain.uncertain()}


def with_values(domain: Domain, draws: Numbers) -> dict[str, Array | float]:
    """Every number of the domain, drawn where it is."""
    return {**domain.values(), **draws}


def data_needed(numbers: Numbers) -> tuple[Array | float | None, Array]:
    """(how many times today's data, the data) of the target, as `frontier.data_needed` has it."""
    above = np.asarray(numbers["error_target"]) - numbers["floor"]
    now = numbers.get("data_now")
    if "error_now" in numbers and now is not None:
        scale = (above / (numbers["error_now"] - numbers["floor"])) ** (1 / np.asarray(numbers["beta_g"]))
        return scale, now * scale
    data = (above / numbers["alpha"]) ** (1 / np.asarray(numbers["beta_g"]))
    return (None if now is None else data / now), data


def projected(
    domain: Domain, formulas: Formulas, target: Accelerator, training: Training
) -> Callable[[Numbers], dict[str, Array]]:
    """The projection as a function of draws: the quantities of `frontier.Projection` by their names, and flop_trained,
    gpu_hours and what they cost.

    With a utilization among the draws a step takes model FLOP ÷ (utilization · peak), else the roofline's time; the
    utilization_ratio is of model FLOP with it, else of all, as that of the roofline is.
    """

    middle = domain.values()
    start = middle["sigma"] * float(data_needed(middle)[1]) ** middle["beta_p"]
    steps = Steps(domain, formulas, start, _costs(domain, formulas, target, training))

    def function(draws: Numbers) -> dict[str, Array]:
        numbers = with_values(domain, draws)
        scale, data = data_needed(numbers)
        parameters = np.asarray(numbers["sigma"] * data ** numbers["beta_p"], dtype=np.float64)
        cost = steps.at(np.atleast_1d(parameters))
        counted = cost["model_flop" if "utilization" in draws else "flop"]
        step_s = _own_s(cost, target, draws) + cost.get("reduce_s", 0.0)
        count = data / numbers["per_sample"] / (domain.sub_batch * training.devices)
        hours = training.devices * training.epochs * count * step_s / SECONDS_PER_HOUR
        found = {
            **({} if scale is None else {"data_scale": scale}),
            "data": data,
            "parameters": parameters,
            "grown": np.round(cost["grown"]),
            "flop": cost["flop"],
            "moved_bytes": cost["moved_bytes"],
            "intensity": cost["flop"] / cost["moved_bytes"],
            "footprint_bytes": cost["footprint_bytes"],
            "step_s": step_s,
            **({"reduce_s": cost["reduce_s"]} if "reduce_s" in cost else {}),
            "utilization_ratio": counted / step_s / target.peak_flop_per_s,
            "steps": count,
            "epoch_s": count * step_s,
            "flop_trained": cost["model_flop"] * training.devices * training.epochs * count,
            "gpu_hours": hours,
            **running_costs(hours, {name: np.asarray(value) for name, value in draws.items()}),
        }
        shape = np.broadcast_shapes(*(np.shape(value) for value in found.values()))
        return {name: np.broadcast_to(np.asarray(value, dtype=np.float64), shape) for name, value in found.items()}

    return function


def _costs(
    domain: Domain, formulas: Formulas, target: Accelerator, training: Training
) -> Callable[[int], Mapping[str, float]]:
    """Width → what a step of it costs one device, with the model FLOP and the wait for the others."""

    def costs(grown: int) -> dict[str, float]:
        found = cost_of(domain, formulas, target, grown)
        point = {**domain.sizes_at(grown), "batch": domain.sub_batch}
        found["model_flop"] = formulas.at("model_flop", **point)
        if training.reduce_s is not None:
            found["reduce_s"] = training.reduce_s(found["parameters"])
        return found

    return costs


def _own_s(cost: Mapping[str, Array], target: Accelerator, draws: Numbers) -> Array:
    """What a step takes one device, without waiting for others."""
    if "utilization" in draws:
        return np.asarray(cost["model_flop"] / (draws["utilization"] * target.peak_flop_per_s), dtype=np.float64)
    return np.maximum(cost["flop"] / target.flop_per_s, cost["moved_bytes"] / target.bytes_per_s)
