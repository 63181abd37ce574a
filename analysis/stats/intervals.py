"""Represents quantities with intervals, and computes the intervals of results that depend on several of them.

A quantity is a median and a spread on a scale where it may be added to. Scales are "log" (positive), "logit" (fractions
between 0 and 1) and "exact" (no interval). On its scale, a quantity has a Student's t distribution with the given
degrees of freedom (infinite: normal). `answers` takes quantities and a function of them, and evaluates the function by
Monte Carlo over a Latin hypercube with a fixed seed. Each input's distribution is cut into as many equally likely
slices as there are draws, and each slice is drawn from once. Inputs are taken to be independent. Not claimed: errors
that no input's interval includes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Draws = Mapping[str, Array]

SEED = 20_260_101
DRAWS = 8192
CONFIDENCE = 0.95

SCALES: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "log": (np.log, np.exp),
    "logit": (lambda x: np.log(x) - np.log1p(-x), lambda z: 1 / (1 + np.exp(-z))),
    "exact": (lambda x: x, lambda z: z),
}
"""Scale → (transform, inverse)."""


@dataclass(frozen=True)
class Uncertain:
    """A quantity. location and spread are on the scale; degrees: its degrees of freedom."""

    location: float
    spread: float = 0.0
    degrees: float = math.inf
    scale: str = "exact"

    @property
    def median(self) -> float:
        """The quantity's median, in the quantity's unit."""
        return float(self.quantiles(np.asarray(0.5, dtype=np.float64)))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the central interval with this probability."""
        low, high = self.quantiles(np.asarray([(1 - confidence) / 2, (1 + confidence) / 2], dtype=np.float64))
        return float(low), float(high)

    def quantiles(self, probability: Array) -> Array:
        """Return the quantiles at these probabilities."""
        from scipy.special import ndtri, stdtrit  # 0.3 s to import: not for a command's --help

        if not self.spread:
            return np.full(np.shape(probability), SCALES[self.scale][1](np.asarray(self.location, dtype=np.float64)))
        z = ndtri(probability) if math.isinf(self.degrees) else stdtrit(self.degrees, probability)
        return SCALES[self.scale][1](self.location + self.spread * np.asarray(z, dtype=np.float64))


@dataclass(frozen=True)
class Ends:
    """A quantity known by a value and two ends, without a distribution: equally likely below and above the value,
    uniform on either side, never beyond the ends. low <= value <= high."""

    value: float
    low: float
    high: float

    @property
    def median(self) -> float:
        """The value."""
        return self.value

    def quantiles(self, probability: Array) -> Array:
        """Return the quantiles at these probabilities."""
        return np.asarray(np.interp(probability, (0.0, 0.5, 1.0), (self.low, self.value, self.high)), dtype=np.float64)


def between(low: float, high: float, confidence: float = CONFIDENCE, scale: str = "log") -> Uncertain:
    """Return the quantity that lies from low to high with this probability, normal on the scale; exact where both are
    equal.

    Raises ValueError for ends that are not in order or not on the scale.
    """
    from scipy.special import ndtri

    if low == high:
        return Uncertain(low)
    top = 1.0 if scale == "logit" else math.inf
    if not 0 < low < high < top:
        raise ValueError(f"expected 0 < low < high{' < 1' if scale == 'logit' else ''}, got {low:g}..{high:g}")
    ends = SCALES[scale][0](np.asarray([low, high], dtype=np.float64))
    return Uncertain(float(ends.mean()), float(np.ptp(ends)) / 2 / float(ndtri((1 + confidence) / 2)), math.inf, scale)


Input = Uncertain | Ends


def hypercube(draws: int, columns: int) -> Array:
    """Draw a Latin hypercube: each column has one value in each of `draws` slices of (0, 1), in random order."""
    random = np.random.default_rng(SEED)
    orders = random.permuted(np.tile(np.arange(draws), (columns, 1)), axis=1).T
    return np.asarray((orders + random.uniform(1e-9, 1 - 1e-9, (draws, columns))) / draws, dtype=np.float64)


@dataclass(frozen=True)
class Estimate:
    """A result: its value with every input at its median, and the central interval of the draws."""

    value: float
    low: float
    high: float


def answers(
    function: Callable[[Draws], Mapping[str, Array]],
    inputs: Mapping[str, Input],
    confidence: float = CONFIDENCE,
) -> dict[str, Estimate]:
    """Evaluate a function of the inputs: return name → Estimate, for each name that it returns.

    function: takes arrays by name and returns arrays by name. It is called with the medians (arrays of one element) and
    with the draws. Its exceptions are passed on.
    """
    uniforms = hypercube(DRAWS, max(len(inputs), 1))
    centre = function({name: np.asarray([quantity.median]) for name, quantity in inputs.items()})
    spread = function(
        {name: value.quantiles(uniforms[:, column]) for column, (name, value) in enumerate(inputs.items())}
    )
    ends = ((1 - confidence) / 2, (1 + confidence) / 2)
    intervals = {name: np.quantile(spread[name], ends, method="nearest") for name in centre}  # lets an end be infinite
    return {name: Estimate(float(centre[name][0]), *map(float, intervals[name])) for name in centre}
