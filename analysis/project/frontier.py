"""Predicts the cost of training to a target error, from a `Domain`, a model's `Formulas` and an `Accelerator`.

`project` returns each quantity of the chain target → data (inverse learning curve) → parameters → width (inverse
formula) → FLOP, bytes, footprint → step (roofline) → epoch. `spread` adds the least and most of each quantity over the
corners of the inputs' intervals. `drawn` returns the projection as a function of independent draws. Its costs are exact
at sizes whose parameters are √2 apart, and interpolated in logarithms between. `fit` fits the paper's first-order laws
(PPoPP 2019, section 4) by least squares of relative residuals. The laws are FLOP = gamma · p · b, bytes = lambda · p +
mu · b · √p, footprint = delta · p, for parameters p and sub-batch b. Not claimed: the number of epochs, that a curve
holds so far out, or that the laws hold for small models.
"""

import functools
import math
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from analysis.formula.expressions import unknown_name
from analysis.project.accelerator import Accelerator, SubBatches, sub_batches
from analysis.project.domain import Domain, Formulas, data_scale, samples_for
from analysis.stats.intervals import Ends, Estimate, Input

DAY_S = 86_400
SECONDS_PER_HOUR = 3600

MOST_BATCH = 2**20
"""The largest sub-batch considered."""

WIDEST = 2**40
"""The largest size considered."""

APART = math.sqrt(2)
"""Ratio of parameters between neighbouring sizes whose costs are exact in `drawn`."""

Array = NDArray[np.float64]


def data_needed(numbers: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the data that the target needs: (multiple of today's data, amount), as floats or arrays. Both follow from
    today's error and data where these are known, else from alpha."""
    target, beta_g, floor, now = numbers["error_target"], numbers["beta_g"], numbers["floor"], numbers.get("data_now")
    if "error_now" in numbers and now is not None:
        scale = data_scale(numbers["error_now"], target, beta_g, floor)
        return scale, now * scale
    data = samples_for(target, numbers["alpha"], beta_g, floor)
    return (None if now is None else data / now), data


def project(
    domain: Domain, formulas: Formulas, target: Accelerator, numbers: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return what the target takes at these numbers (by default the domain's). Raises ValueError for an impossible
    projection.

    data: in units of the learning curve, data_scale: over today's, where known; grown: the size that grows.
    footprint_bytes: what is kept for the backward pass and a gradient of each parameter, not a framework's peak.
    utilization_ratio: of the nominal peak, by the roofline only; bound: arithmetic or memory.
    """
    numbers = domain.values() if numbers is None else numbers
    scale, data = data_needed(numbers)
    parameters = numbers["sigma"] * data ** numbers["beta_p"]
    grown = grown_for(domain, formulas, parameters)
    cost = cost_of(domain, formulas, target, grown)
    step = target.step(cost["flop"], cost["moved_bytes"])
    steps = data / numbers["per_sample"] / domain.sub_batch
    return {
        **({} if scale is None else {"data_scale": scale}),
        **cost,
        "data": data,
        "parameters": parameters,
        "grown": grown,
        "model_parameters": cost["parameters"],
        "intensity": cost["flop"] / cost["moved_bytes"],
        "step_s": step.time_s,
        "bound": step.bound,
        "utilization_ratio": step.utilization_ratio,
        "steps": steps,
        "epoch_s": steps * step.time_s,
    }


def spread(domain: Domain, formulas: Formulas, target: Accelerator) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """Return the projection, and the least and the most of each number over the corners of the intervals.

    Raises ValueError as `project` does, at any corner.
    """
    middle = project(domain, formulas, target)
    every = [middle, *(project(domain, formulas, target, corner) for corner in domain.corners())]
    columns = {name: [projection[name] for projection in every] for name in middle if name != "bound"}
    return middle, {
        name: Estimate(column[0], float(min(column)), float(max(column))) for name, column in columns.items()
    }


def cost_of(
    domain: Domain, formulas: Formulas, target: Accelerator, grown: int, batch: int | None = None
) -> dict[str, float]:
    """Return parameters, flop, moved_bytes and footprint_bytes of a step at a size, with the target's bytes per
    number."""
    sizes = {**domain.sizes_at(grown), "batch": batch or domain.sub_batch}
    share = target.element_bytes / formulas.element_bytes
    parameters = formulas.value("parameters", **sizes)
    return {
        "parameters": parameters,
        "flop": formulas.value("all_flop", **sizes),
        "moved_bytes": formulas.value("bytes_accessed", **sizes) * share,
        "footprint_bytes": formulas.value("kept_bytes", **sizes) * share + parameters * target.element_bytes,
    }


def grown_for(domain: Domain, formulas: Formulas, parameters: float) -> int:
    """Return the size at which the model has this many parameters, to the nearest integer.

    Raises ValueError where the model lacks the size, has more parameters even at its least size, or has fewer at
    WIDEST.
    """
    if domain.grows not in formulas.sizes:
        raise ValueError(f"grows: {unknown_name(f'size of {formulas.model}', domain.grows, formulas.sizes)}")

    def count(size: int) -> float:
        return formulas.value("parameters", **domain.sizes_at(size))

    least = next((size for size in (1, 2, 4, 8) if all(number > 0 for number in domain.sizes_at(size).values())), 8)
    if count(least) > parameters:
        raise ValueError(
            f"{formulas.model}: expected {count(least):,.0f} parameters or more, those at {domain.grows} {least}, "
            f"got {parameters:,.0f}"
        )
    if count(WIDEST) < parameters:
        raise ValueError(
            f"{formulas.model}: expected {count(WIDEST):,.0f} parameters or fewer, those at {domain.grows} {WIDEST}, "
            f"got {parameters:,.0f}"
        )
    low = least + bisect(range(least + 1, WIDEST), parameters, key=count)
    return low if parameters - count(low) <= count(low + 1) - parameters else low + 1


def batches(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> SubBatches:
    """Return the sub-batches of interest at a size, by the whole step's roofline."""

    def cost(batch: int) -> tuple[float, float]:
        whole = cost_of(domain, formulas, target, grown, batch)
        return whole["flop"], whole["moved_bytes"]

    return sub_batches(cost, target, MOST_BATCH)


def largest_batch(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> int:
    """Return the largest sub-batch whose footprint fits in the target's memory, 0 for none. Raises ValueError without
    memory."""
    if target.memory_bytes is None:
        raise ValueError(f"{target.name}: expected a known size of memory, got none")

    def held(batch: int) -> float:
        return cost_of(domain, formulas, target, grown, batch)["footprint_bytes"]

    return bisect(range(1, MOST_BATCH + 1), target.memory_bytes, key=held)


# --- over draws ------------------------------------------------------------------------------------------------------


def domain_inputs(domain: Domain) -> dict[str, Input]:
    """Return the domain's numbers that have an interval."""
    return {name: Ends(*domain.numbers[name]) for name in domain.uncertain()}


def drawn(
    domain: Domain,
    formulas: Formulas,
    target: Accelerator,
    devices: int = 1,
    reduce_s: Callable[[float], float] = lambda _parameters: 0.0,
) -> Callable[[Mapping[str, Array | float]], dict[str, Array]]:
    """Return the projection as a function of draws: the quantities of `project` by name, flop_trained, gpu_hours.

    devices: number that train together, each with its own sub-batch. reduce_s: parameters → seconds that a step waits
    for the sum of their gradients. With a utilization among the draws, a step takes model FLOP ÷ (utilization · peak),
    and utilization_ratio is of model FLOP; otherwise it takes the roofline's time, and the ratio is of all FLOP.
    """
    middle = domain.values()
    start = middle["sigma"] * data_needed(middle)[1] ** middle["beta_p"]

    @functools.cache
    def exact(exponent: int) -> Mapping[str, float]:
        grown = grown_for(domain, formulas, float(start * APART**exponent))
        cost = {"grown": float(grown), **cost_of(domain, formulas, target, grown)}
        cost["model_flop"] = formulas.value("model_flop", **domain.sizes_at(grown), batch=domain.sub_batch)
        return cost

    def read_off(parameters: Array) -> dict[str, Array]:
        wanted = np.log(parameters / start) / math.log(APART)
        exponents = range(math.floor(round(wanted.min(), 9)), math.ceil(round(wanted.max(), 9)) + 1)
        points = [exact(exponent) for exponent in exponents]
        costs = {name: np.interp(wanted, exponents, np.log([point[name] for point in points])) for name in points[0]}
        waits = np.interp(wanted, exponents, [reduce_s(point["parameters"]) for point in points])
        return {name: np.exp(cost) for name, cost in costs.items()} | {"reduce_s": waits}

    def function(draws: Mapping[str, Array | float]) -> dict[str, Array]:
        numbers: dict[str, Any] = {name: np.asarray(number) for name, number in {**middle, **draws}.items()}
        scale, data = data_needed(numbers)
        parameters = np.atleast_1d(numbers["sigma"] * data ** numbers["beta_p"])
        cost = read_off(parameters)
        counted = cost["model_flop" if "utilization" in draws else "flop"]
        if "utilization" in draws:
            own_s = counted / (numbers["utilization"] * target.peak_flop_per_s)
        else:
            own_s = np.maximum(counted / target.flop_per_s, cost["moved_bytes"] / target.bytes_per_s)
        step_s = own_s + cost["reduce_s"]
        steps = data / numbers["per_sample"] / (domain.sub_batch * devices)
        results = {
            "data": data,
            "parameters": parameters,
            "grown": np.round(cost["grown"]),
            "flop": cost["flop"],
            "moved_bytes": cost["moved_bytes"],
            "intensity": cost["flop"] / cost["moved_bytes"],
            "footprint_bytes": cost["footprint_bytes"],
            "reduce_s": cost["reduce_s"],
            "step_s": step_s,
            "utilization_ratio": counted / step_s / target.peak_flop_per_s,
            "steps": steps,
            "epoch_s": steps * step_s,
            "flop_trained": cost["model_flop"] * devices * steps,
            "gpu_hours": devices * steps * step_s / SECONDS_PER_HOUR,
        } | ({} if scale is None else {"data_scale": scale})
        return dict(zip(results, np.broadcast_arrays(*results.values()), strict=True))

    return function


# --- first-order laws ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostPoint:
    """An exact step. footprint_bytes: None where unknown."""

    parameters: float
    batch: float
    flop: float
    moved_bytes: float
    footprint_bytes: float | None = None


@dataclass(frozen=True)
class Laws:
    """gamma: FLOP per parameter and sample; lambda_: bytes per parameter; mu: bytes per sample and root of the
    parameters; delta: footprint bytes per parameter."""

    gamma: float
    lambda_: float
    mu: float
    delta: float | None = None

    def flop(self, parameters: float, batch: float) -> float:
        """Return the FLOP of a step."""
        return self.gamma * parameters * batch

    def moved_bytes(self, parameters: float, batch: float) -> float:
        """Return the bytes that a step reads and writes."""
        return self.lambda_ * parameters + self.mu * batch * math.sqrt(parameters)

    def intensity(self, parameters: float, batch: float) -> float:
        """Return the FLOP per byte."""
        return self.flop(parameters, batch) / self.moved_bytes(parameters, batch)


@dataclass(frozen=True)
class FirstOrderFit:
    """Fitted laws. worst_ratio: quantity → largest residual relative to the exact value."""

    laws: Laws
    worst_ratio: dict[str, float]
    points: int


def fit(points: Sequence[CostPoint]) -> FirstOrderFit:
    """Fit the laws to these points, with non-negative coefficients."""
    columns = {
        "flop": [[p.parameters * p.batch / p.flop] for p in points],
        "bytes": [[p.parameters / p.moved_bytes, p.batch * math.sqrt(p.parameters) / p.moved_bytes] for p in points],
        "footprint": [[p.parameters / p.footprint_bytes] for p in points if p.footprint_bytes is not None],
    }
    solved, worst = {}, {}
    for name, rows in columns.items():
        if rows:
            ratios = np.array(rows)
            solved[name] = nnls(ratios, np.ones(len(rows)))[0].tolist()
            worst[name] = float(abs(ratios @ solved[name] - 1).max())
    laws = Laws(*solved["flop"], *solved["bytes"], *solved.get("footprint", []))
    return FirstOrderFit(laws, worst, len(points))


FAR = 2**70
"""A width so large that a formula there equals its limit to fifteen digits."""

SPAN = 8
"""Ratio of the widths of a sweep; the parameters grow 64-fold."""

WIDTHS = 9
BATCHES = (0.25, 1.0, 4.0)


def fit_sweep(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> FirstOrderFit:
    """Fit the laws to a sweep of widths of equal ratio up to this size; the footprint at the domain's sub-batch
    only."""
    points = []
    own = max(1, grown // SPAN)
    for step in range(WIDTHS):
        width = round(own * (grown / own) ** (step / (WIDTHS - 1)))
        for share in BATCHES:
            batch = max(1, round(domain.sub_batch * share))
            cost = cost_of(domain, formulas, target, width, batch)
            held = cost["footprint_bytes"] if batch == domain.sub_batch else None
            points.append(CostPoint(cost["parameters"], batch, cost["flop"], cost["moved_bytes"], held))
    return fit(points)


def asymptote(domain: Domain, formulas: Formulas, element_bytes: int = 4) -> dict[str, float]:
    """Return gamma, lambda, mu and delta of a model in the limit of infinite size, at the domain's sub-batch.

    mu: the part of the bytes that grows with the batch, over √p. delta: of what is kept for the backward pass and of a
    gradient of each parameter. element_bytes: of a number in memory.
    """
    share, batch = element_bytes / formulas.element_bytes, domain.sub_batch

    def limit(quantity: str, batch: int = batch) -> Any:
        return formulas.exact(quantity, **{**domain.sizes_at(FAR), "batch": batch})

    size, moved = float(limit("parameters")), limit("bytes_accessed")
    return {
        "gamma": float(limit("all_flop")) / size / batch,
        "lambda": share * float(moved) / size,
        "mu": share * float(limit("bytes_accessed", batch + 1) - moved) / math.sqrt(size),
        "delta": share * float(limit("kept_bytes")) / size + element_bytes,
    }


PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


def amount(value: float | None, unit: str = "") -> str:
    """Format a number with four digits, or all before the point, and from a million on with a prefix: 1.444e15, "FLOP"
    → "1.444 PFLOP". None gives "-"."""
    if value is None:
        return "-"
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s), (1.0, ""))
    digits = max(4, len(str(int(abs(value / scale)))))
    return f"{float(f'{value / scale:.{digits}g}'):,}".removesuffix(".0") + f" {prefix}{unit}".rstrip()
