"""Answers over draws of their inputs: a domain's projection, thousands at once, and the compute of GPU-hours.

A step's costs are exact at sizes whose parameters are √2 apart and read off between them, straight in logarithms; all
else is the arithmetic of `analysis/project/frontier.py` on arrays. A number with ends is drawn between them
(`analysis/stats/intervals.py`, `Ends`), independent of the others. Not claimed: that a curve's numbers are independent
of each other, which those of one fit are not; the box of `frontier.spread` is the wider answer.
"""

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from analysis.project.accelerator import Accelerator
from analysis.project.domain import Domain, Formulas
from analysis.project.frontier import cost_of, grown_for
from analysis.stats.intervals import Ends, Input

Array = NDArray[np.float64]


Numbers = Mapping[str, Array | float]


Quantities = Mapping[str, float]


APART = math.sqrt(2)
"""Parameters of neighbouring sizes."""


SECONDS_PER_HOUR = 3600


def domain_inputs(domain: Domain) -> dict[str, Input]:
    """The domain's numbers that have an interval."""
    return {name: Ends(*domain.numbers[name]) for name in domain.uncertain()}


def projected(
    domain: Domain,
    formulas: Formulas,
    target: Accelerator,
    devices: int = 1,
    reduce_s: Callable[[float], float] | None = None,
) -> Callable[[Numbers], dict[str, Array]]:
    """The projection as a function of draws: the quantities of `frontier.Projection` by name, flop_trained, gpu_hours.

    devices: that train together, each with a sub-batch of its own. reduce_s: seconds that a step waits for the sum of
    the gradients of so many parameters. With a utilization among the draws a step takes model FLOP ÷ (utilization ·
    peak), else the roofline's time; the utilization_ratio is of model FLOP with it, else of all.
    """
    middle = domain.values()
    start = middle["sigma"] * float(_data_needed(middle)[1]) ** middle["beta_p"]

    @functools.cache
    def exact(place: int) -> Quantities:
        grown = grown_for(domain, formulas, float(start * APART**place))
        cost = {"grown": float(grown), **cost_of(domain, formulas, target, grown)}
        cost["model_flop"] = formulas.at("model_flop", **domain.sizes_at(grown), batch=domain.sub_batch)
        return cost if reduce_s is None else {**cost, "reduce_s": reduce_s(cost["parameters"])}

    def read_off(parameters: Array) -> dict[str, Array]:
        wanted = np.log(parameters / start) / math.log(APART)
        places = range(math.floor(round(wanted.min(), 9)), math.ceil(round(wanted.max(), 9)) + 1)
        points = [exact(place) for place in places]
        return {
            name: np.exp(np.interp(wanted, places, np.log([point[name] for point in points]))) for name in points[0]
        }

    def function(draws: Numbers) -> dict[str, Array]:
        numbers = {**middle, **draws}
        scale, data = _data_needed(numbers)
        parameters = np.asarray(numbers["sigma"] * data ** numbers["beta_p"], dtype=np.float64)
        cost = read_off(np.atleast_1d(parameters))
        step_s = _own_s(cost, target, draws) + cost.get("reduce_s", 0.0)
        steps = data / numbers["per_sample"] / (domain.sub_batch * devices)
        counted = cost["model_flop" if "utilization" in draws else "flop"]
        found: dict[str, Array | float] = {} if scale is None else {"data_scale": scale}
        found |= {name: cost[name] for name in ("flop", "moved_bytes", "footprint_bytes", "reduce_s") if name in cost}
        found |= {
            "data": data,
            "parameters": parameters,
            "grown": np.round(cost["grown"]),
            "intensity": cost["flop"] / cost["moved_bytes"],
            "step_s": step_s,
            "utilization_ratio": counted / step_s / target.peak_flop_per_s,
            "steps": steps,
            "epoch_s": steps * step_s,
            "flop_trained": cost["model_flop"] * devices * steps,
            "gpu_hours": devices * steps * step_s / SECONDS_PER_HOUR,
        }
        shape = np.broadcast_shapes(*(np.shape(value) for value in found.values()))
        return {name: np.broadcast_to(np.asarray(value, dtype=np.float64), shape) for name, value in found.items()}

    return function


def _data_needed(numbers: Numbers) -> tuple[Array | float | None, Array]:
    """(how many times today's data, the data) of the target, as `frontier.data_needed` has it."""
    above = np.asarray(numbers["error_target"]) - numbers["floor"]
    now = numbers.get("data_now")
    if "error_now" in numbers and now is not None:
        scale = (above / (numbers["error_now"] - numbers["floor"])) ** (1 / np.asarray(numbers["beta_g"]))
        return scale, now * scale
    data = (above / numbers["alpha"]) ** (1 / np.asarray(numbers["beta_g"]))
    return (None if now is None else data / now), data


def _own_s(cost: Mapping[str, Array], target: Accelerator, draws: Numbers) -> Array:
    """What a step takes one device, without waiting for others."""
    if "utilization" in draws:
        return np.asarray(cost["model_flop"] / (draws["utilization"] * target.peak_flop_per_s), dtype=np.float64)
    return np.maximum(cost["flop"] / target.flop_per_s, cost["moved_bytes"] / target.bytes_per_s)
