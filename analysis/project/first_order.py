"""First-order laws of a training step in its parameters p and its sub-batch b, and their fit to exact formulas.

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

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.project.accelerator import Accelerator
from analysis.project.domain import Domain
from analysis.project.frontier import cost_of
from analysis.project.shipped_formulas import Formulas


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
