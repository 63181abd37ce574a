"""From a learning curve, a model's formulas and a machine to what training to a target error would take.

    target → data (inverse learning curve) → parameters (model size) → width (inverse formula) → FLOP, bytes, footprint
           → step (roofline) → epoch

Intervals are those of the box: every number with an interval goes to both ends, all combinations, and the least and the
most of each result are reported. That is wider than a confidence interval and takes no correlation into account. Not
claimed: what no input says, such as how many epochs it takes, or that a curve holds so far out.

First-order laws of a training step in its parameters p and its sub-batch b, and their fit to exact formulas.

    FLOP = gamma · p · b      bytes = lambda · p + mu · b · √p      footprint = delta · p      section 4 of the paper

so that the operational intensity is b·√p ÷ (lambda/gamma · √p + mu/gamma · b): the form of one matrix product of b rows
by a square of side √p. A fit takes points of a sweep over widths, with equal weights
(least squares of relative residuals). Not claimed: that the laws hold for small models, where embeddings weigh more;
`Fit.worst_ratio` says how far the farthest point is.

`fitted` and `asymptote` are of a domain's model: a fit over a sweep of widths, and the limits.
The sweep goes from an eighth of the projected size to that size and from a quarter to four times the sub-batch. A limit
is what the exact formula tends to as the model grows, at the domain's sub-batch; a fit lies below or above it as far as
embeddings and activations still weigh.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from analysis.formula.algebra.expressions import unknown_name
from analysis.project import learning_curves
from analysis.project.accelerator import Accelerator, SubBatches, sub_batches
from analysis.project.domain import Domain, Formulas

DAY_S = 86_400

MOST_BATCH = 2**20
"""Sub-batches are looked for up to here."""

WIDEST = 2**40


@dataclass(frozen=True)
class Projection:
    """What the target takes. data: in units of the learning curve; grown: the size that grows.

    footprint_bytes: what is kept for the backward pass and a gradient of each parameter; the peak of a framework is
    another. utilization_ratio: of the nominal peak, by the roofline alone.
    """

    data_scale: float | None
    data: float
    parameters: float
    grown: int
    model_parameters: float
    flop: float
    moved_bytes: float
    intensity: float
    footprint_bytes: float
    step_s: float
    bound: str
    utilization_ratio: float
    steps: float
    epoch_s: float


@dataclass(frozen=True)
class ProjectionRange:
    """A projection with the least and the most of each of its numbers over the box of intervals."""

    middle: Projection
    low: Mapping[str, float]
    high: Mapping[str, float]


def data_needed(numbers: Mapping[str, float]) -> tuple[float | None, float]:
    """(how many times today's data, the data) of the target. By today's error and data where they are known, else by
    alpha. Raises ValueError where no data is enough."""
    floor = numbers["floor"]
    if "error_now" in numbers and "data_now" in numbers:
        scale = learning_curves.data_scale(numbers["error_now"], numbers["error_target"], numbers["beta_g"], floor)
        return scale, numbers["data_now"] * scale
    curve = learning_curves.LearningCurve(numbers["alpha"], numbers["beta_g"], floor, numbers["guess"])
    data = curve.samples(numbers["error_target"])
    return (data / numbers["data_now"] if "data_now" in numbers else None), data


def project(
    domain: Domain, formulas: Formulas, target: Accelerator, numbers: Mapping[str, float] | None = None
) -> Projection:
    """The projection at these numbers (the domain's own). Raises ValueError for what cannot be."""
    numbers = domain.values() if numbers is None else numbers
    scale, data = data_needed(numbers)
    parameters = learning_curves.ModelSize(numbers["sigma"], numbers["beta_p"]).parameters(data)
    grown = grown_for(domain, formulas, parameters)
    cost = cost_of(domain, formulas, target, grown)
    step = target.step(cost["flop"], cost["moved_bytes"])
    steps = data / numbers["per_sample"] / domain.sub_batch
    return Projection(
        data_scale=scale,
        data=data,
        parameters=parameters,
        grown=grown,
        model_parameters=cost["parameters"],
        flop=cost["flop"],
        moved_bytes=cost["moved_bytes"],
        intensity=cost["flop"] / cost["moved_bytes"],
        footprint_bytes=cost["footprint_bytes"],
        step_s=step.time_s,
        bound=step.bound,
        utilization_ratio=step.utilization_ratio,
        steps=steps,
        epoch_s=steps * step.time_s,
    )


def spread(domain: Domain, formulas: Formulas, target: Accelerator) -> ProjectionRange:
    """The projection with its intervals. Raises ValueError as `project` does, at any corner."""
    middle = project(domain, formulas, target)
    found = [middle, *(project(domain, formulas, target, corner) for corner in domain.corners())]
    kept = [name.name for name in fields(Projection) if isinstance(getattr(middle, name.name), int | float)]
    columns = {name: [float(getattr(each, name)) for each in found] for name in kept}
    return ProjectionRange(
        middle,
        {name: min(values) for name, values in columns.items()},
        {name: max(values) for name, values in columns.items()},
    )


def cost_of(
    domain: Domain, formulas: Formulas, target: Accelerator, grown: int, batch: int | None = None
) -> dict[str, float]:
    """parameters, flop, moved_bytes and footprint_bytes of a step at a size. Numbers take what the target's take."""
    at = {**domain.sizes_at(grown), "batch": batch or domain.sub_batch}
    share = target.element_bytes / formulas.element_bytes
    parameters = formulas.at("parameters", **at)
    kept = formulas.at("kept_bytes", **at) * share
    return {
        "parameters": parameters,
        "flop": formulas.at("all_flop", **at),
        "moved_bytes": formulas.at("bytes_accessed", **at) * share,
        "footprint_bytes": kept + parameters * target.element_bytes,
    }


def grown_for(domain: Domain, formulas: Formulas, parameters: float) -> int:
    """The size at which the model has as many parameters, to the nearest whole number.

    Raises ValueError for a model that has more parameters even at 1, or whose parameters the size does not change.
    """
    if domain.grows not in formulas.sizes:
        raise ValueError(f"grows: {unknown_name(f'size of {formulas.model}', domain.grows, formulas.sizes)}")

    def count(size: int) -> float:
        return formulas.at("parameters", **domain.sizes_at(size))

    least = next((size for size in (1, 2, 4, 8) if all(each > 0 for each in domain.sizes_at(size).values())), 8)
    if count(least) > parameters:
        raise ValueError(
            f"{formulas.model}: expected {count(least):,.0f} parameters or more, those at {domain.grows} {least}, "
            f"got {parameters:,.0f}"
        )
    high = least * 2
    while count(high) < parameters:
        high *= 2
        if high > WIDEST:
            raise ValueError(f"{formulas.model}: {domain.grows} up to {WIDEST} gives no {parameters:,.0f} parameters")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= parameters else (low, middle)
    return low if parameters - count(low) <= count(high) - parameters else high


def batches(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> SubBatches:
    """Sub-batches of interest at a size (`analysis/project/domain.py`), by the roofline of the whole
    step."""

    def of(quantity: str) -> Callable[[int], float]:
        return lambda batch: cost_of(domain, formulas, target, grown, batch)[quantity]

    flop, moved = of("flop"), of("moved_bytes")
    return sub_batches(
        flop, moved, lambda batch: target.step(flop(batch), moved(batch)).time_s, target.ridge, MOST_BATCH
    )


def largest_batch(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> int:
    """The largest sub-batch whose footprint the target's memory holds, 0 for none. Raises ValueError without memory."""
    if target.memory_bytes is None:
        raise ValueError(f"{target.name}: expected a memory, none is known")
    memory = target.memory_bytes

    def fits(batch: int) -> bool:
        return cost_of(domain, formulas, target, grown, batch)["footprint_bytes"] <= memory

    low, high = 0, 1
    while high <= MOST_BATCH and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def accelerators_for(footprint_bytes: float, target: Accelerator) -> int | None:
    """How many of the target it takes to hold so much, evenly divided; None where its memory is not known."""
    return math.ceil(footprint_bytes / target.memory_bytes) if target.memory_bytes else None


@dataclass(frozen=True)
class Point:
    """An exact step. footprint_bytes: None where it is not known."""

    parameters: float
    batch: float
    flop: float
    moved_bytes: float
    footprint_bytes: float | None = None


@dataclass(frozen=True)
class Laws:
    """gamma: FLOP a parameter and sample; lambda_: bytes a parameter; mu: bytes a sample and root of the parameters;
    delta: bytes of footprint a parameter."""

    gamma: float
    lambda_: float
    mu: float
    delta: float | None = None

    def flop(self, parameters: float, batch: float) -> float:
        """FLOP of a step."""
        return self.gamma * parameters * batch

    def moved_bytes(self, parameters: float, batch: float) -> float:
        """Bytes that a step reads and writes."""
        return self.lambda_ * parameters + self.mu * batch * math.sqrt(parameters)

    def intensity(self, parameters: float, batch: float) -> float:
        """FLOP a byte."""
        return self.flop(parameters, batch) / self.moved_bytes(parameters, batch)


@dataclass(frozen=True)
class FirstOrderFit:
    """Laws of a sweep. worst_ratio: quantity → its largest residual relative to the exact value."""

    laws: Laws
    worst_ratio: dict[str, float]
    points: int


def fit(points: Sequence[Point]) -> FirstOrderFit:
    """The laws of these points. Raises ValueError for fewer than two, or a sweep of one size in one batch."""
    if len(points) < 2 or len({(point.parameters, point.batch) for point in points}) < 2:
        raise ValueError(f"expected a sweep of two sizes or more, got {len(points)}")
    gamma = _one([p.parameters * p.batch / p.flop for p in points])
    lambda_, mu = _two(
        [(p.parameters / p.moved_bytes, p.batch * math.sqrt(p.parameters) / p.moved_bytes) for p in points]
    )
    held = [(p.parameters, p.footprint_bytes) for p in points if p.footprint_bytes is not None]
    laws = Laws(gamma, lambda_, mu, _one([p / f for p, f in held]) if held else None)
    return FirstOrderFit(laws, _residuals(laws, points), len(points))


def _one(ratios: Sequence[float]) -> float:
    """The c of least Σ(c·x/y - 1)²; ratios: x/y."""
    return sum(ratios) / sum(ratio * ratio for ratio in ratios)


def _two(ratios: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The (c, d) of least Σ(c·x/y + d·z/y - 1)²; ratios: (x/y, z/y). A sum cannot take away: neither is below 0."""
    xx, xz, zz = (sum(r[i] * r[j] for r in ratios) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, z = (sum(r[i] for r in ratios) for i in (0, 1))
    determinant = xx * zz - xz * xz
    if determinant > 1e-12 * xx * zz:
        first, second = (x * zz - z * xz) / determinant, (z * xx - x * xz) / determinant
        if first >= 0 and second >= 0:
            return first, second
    return (x / xx, 0.0) if x * x * zz >= z * z * xx else (0.0, z / zz)


def _residuals(laws: Laws, points: Sequence[Point]) -> dict[str, float]:
    def worst(pairs: Sequence[tuple[float, float]]) -> float:
        return max(abs(law / exact - 1) for law, exact in pairs)

    found = {
        "flop": worst([(laws.flop(p.parameters, p.batch), p.flop) for p in points]),
        "bytes": worst([(laws.moved_bytes(p.parameters, p.batch), p.moved_bytes) for p in points]),
    }
    held = [(p.parameters, p.footprint_bytes) for p in points if p.footprint_bytes is not None]
    if held and laws.delta is not None:
        found["footprint"] = worst([(laws.delta * size, exact) for size, exact in held])
    return found


FAR = 2**70
"""A width so large that a formula there is its limit to fifteen digits."""

SPAN = 8
"""The widths of a sweep are this many times apart: the parameters, 64 times."""

WIDTHS = 9
BATCHES = (0.25, 1.0, 4.0)


def fit_sweep(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> FirstOrderFit:
    """The laws of the sweep up to this size."""
    return fit(list(sweep(domain, formulas, target, grown)))


def sweep(domain: Domain, formulas: Formulas, target: Accelerator, grown: int, widths: int = WIDTHS) -> Iterator[Point]:
    """Exact steps at widths of equal ratio up to `grown`; the footprint at the sub-batch alone."""
    own = max(1, grown // SPAN)
    for step in range(widths):
        width = round(own * (grown / own) ** (step / (widths - 1)))
        for share in BATCHES:
            batch = max(1, round(domain.sub_batch * share))
            cost = cost_of(domain, formulas, target, width, batch)
            held = cost["footprint_bytes"] if batch == domain.sub_batch else None
            yield Point(cost["parameters"], batch, cost["flop"], cost["moved_bytes"], held)


def asymptote(domain: Domain, formulas: Formulas, element_bytes: int = 4) -> dict[str, float]:
    """gamma, lambda, mu and delta of a model as it grows without end, at the domain's sub-batch.

    mu: the part of the bytes that grows with the batch, over √p. delta: of what is kept for the backward pass and of a
    gradient of each parameter. element_bytes: of a number in memory.
    """
    share = element_bytes / formulas.element_bytes

    def at(quantity: str, batch: int) -> float:
        return float(formulas.exact(quantity, **{**domain.sizes_at(FAR), "batch": batch}))

    batch = domain.sub_batch
    here = {**domain.sizes_at(FAR)}
    size = at("parameters", batch)
    one, two = (formulas.exact("bytes_accessed", **{**here, "batch": each}) for each in (batch, batch + 1))
    return {
        "gamma": at("all_flop", batch) / size / batch,
        "lambda": share * float(one) / size,
        "mu": share * float(two - one) / math.sqrt(size),
        "delta": share * at("kept_bytes", batch) / size + element_bytes,
    }
