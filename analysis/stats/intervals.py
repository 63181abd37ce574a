"""Quantities with an interval, and what an answer made of several of them is worth.

A quantity is a median and a spread on a scale where it may be added to: "log" for what is positive, "logit" for
fractions between 0 and 1, "exact" for what has no interval. On that scale it is Student's t with its own degrees of
freedom (infinite: normal). Answers are carried through by Monte Carlo over a Latin hypercube with a fixed seed: each
input's own distribution is cut into as many equally likely slices as there are draws, and each slice is drawn from
once, so that medians and intervals settle faster than with independent draws, and a rerun gives the same digits.

Inputs are taken to be independent of each other; what depends on each other is one `JointNormal`. It is not
claimed that an interval holds what nobody thought of: it holds what its inputs hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
"""Scale → (to it, back from it)."""


@dataclass(frozen=True)
class Uncertain:
    """A quantity. location and spread are on the scale; degrees: of freedom of its Student's t."""

    location: float
    spread: float = 0.0
    degrees: float = math.inf
    scale: str = "exact"

    @property
    def median(self) -> float:
        """The quantity's median, in its own unit."""
        return float(self.at(np.asarray(0.5, dtype=np.float64)))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The central interval that holds it with this probability."""
        low, high = self.at(np.asarray([(1 - confidence) / 2, (1 + confidence) / 2], dtype=np.float64))
        return float(low), float(high)

    def at(self, probability: Array) -> Array:
        """Its quantiles."""
        from scipy.special import ndtri, stdtrit  # 0.3 s to import: not for a command's --help

        if not self.spread:
            return np.full(np.shape(probability), SCALES[self.scale][1](np.asarray(self.location, dtype=np.float64)))
        z = ndtri(probability) if math.isinf(self.degrees) else stdtrit(self.degrees, probability)
        return SCALES[self.scale][1](self.location + self.spread * np.asarray(z, dtype=np.float64))


@dataclass(frozen=True)
class Ends:
    """A quantity of which a value and two ends are given, and no distribution: as likely below the value as above it,
    evenly spread on either side, never beyond the ends. low <= value <= high."""

    value: float
    low: float
    high: float

    @property
    def median(self) -> float:
        """The value."""
        return self.value

    def at(self, probability: Array) -> Array:
        """Its quantiles."""
        return np.asarray(np.interp(probability, (0.0, 0.5, 1.0), (self.low, self.value, self.high)), dtype=np.float64)


def exactly(value: float) -> Uncertain:
    """A quantity without an interval."""
    return Uncertain(value)


def between(low: float, high: float, confidence: float = CONFIDENCE, scale: str = "log") -> Uncertain:
    """What lies from low to high with this probability, normal on the scale; exact where both are equal.

    Raises ValueError for ends that are not in order or not on the scale.
    """
    from scipy.special import ndtri

    if low == high:
        return exactly(low)
    top = 1.0 if scale == "logit" else math.inf
    if not 0 < low < high < top:
        raise ValueError(f"expected 0 < low < high{' < 1' if scale == 'logit' else ''}, got {low:g}..{high:g}")
    ends = SCALES[scale][0](np.asarray([low, high], dtype=np.float64))
    return Uncertain(float(ends.mean()), float(np.ptp(ends)) / 2 / float(ndtri((1 + confidence) / 2)), math.inf, scale)


@dataclass(frozen=True)
class JointNormal:
    """Quantities that depend on each other: normal together, each on its own scale (only "log" and "exact").

    covariance: of the locations, on their scales, in the order of the names.
    """

    names: tuple[str, ...]
    locations: tuple[float, ...]
    scales: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]

    def medians(self) -> dict[str, float]:
        """Name → median."""
        return {name: float(SCALES[s][1](np.asarray(z, dtype=np.float64))) for name, z, s in self._each()}

    def draws(self, uniforms: Array) -> dict[str, Array]:
        """Name → draws. uniforms: one row a draw, one column a name, each in (0, 1)."""
        from scipy.special import ndtri

        root = np.linalg.cholesky(np.asarray(self.covariance))
        moved = ndtri(uniforms) @ root.T
        return {name: SCALES[s][1](z + moved[:, i]) for i, (name, z, s) in enumerate(self._each())}

    def _each(self) -> list[tuple[str, float, str]]:
        return list(zip(self.names, self.locations, self.scales, strict=True))


Input = Uncertain | Ends | JointNormal


def hypercube(draws: int, columns: int, seed: int = SEED) -> Array:
    """Latin hypercube: in each column every one of `draws` slices of (0, 1) once, in an order of its own."""
    random = np.random.default_rng(seed)
    orders = random.permuted(np.tile(np.arange(draws), (columns, 1)), axis=1).T
    return np.asarray((orders + random.uniform(1e-9, 1 - 1e-9, (draws, columns))) / draws, dtype=np.float64)


def medians(inputs: Mapping[str, Input]) -> dict[str, float]:
    """Every input at its median; those of a block by their own names."""
    found: dict[str, float] = {}
    for name, each in inputs.items():
        found |= each.medians() if isinstance(each, JointNormal) else {name: each.median}
    return found


def draw_inputs(inputs: Mapping[str, Input], only: str | None = None, draws: int = DRAWS, seed: int = SEED) -> Draws:
    """Draws of every input; with `only`, the other inputs stay at their medians."""
    widths = [len(each.names) if isinstance(each, JointNormal) else 1 for each in inputs.values()]
    uniforms, column = hypercube(draws, max(sum(widths), 1), seed), 0
    found: dict[str, Array] = {}
    for (name, each), width in zip(inputs.items(), widths, strict=True):
        mine, column = uniforms[:, column : column + width], column + width
        if only is not None and name != only:
            found |= {key: np.full(draws, value) for key, value in medians({name: each}).items()}
        else:
            found |= each.draws(mine) if isinstance(each, JointNormal) else {name: each.at(mine[:, 0])}
    return found


@dataclass(frozen=True)
class Estimate:
    """An answer: with every input at its median, and the central interval of the draws."""

    value: float
    low: float
    high: float


def answers(
    function: Callable[[Draws], Mapping[str, Array]],
    inputs: Mapping[str, Input],
    confidence: float = CONFIDENCE,
    draws: int = DRAWS,
) -> dict[str, Estimate]:
    """What a function of the inputs says: name → Answer, for each name that it returns.

    function: takes arrays by name and returns arrays by name; it is called with the medians (as arrays of one) and
    with the draws. Raises what it raises.
    """
    centre = function({name: np.asarray([value]) for name, value in medians(inputs).items()})
    spread = function(draw_inputs(inputs, draws=draws))
    return {name: Estimate(float(centre[name][0]), *_ends(spread[name], confidence)) for name in centre}


@dataclass(frozen=True)
class Swing:
    """How far one input alone moves an answer: the interval of the answer with all other inputs at their medians."""

    input: str
    low: float
    high: float

    @property
    def width(self) -> float:
        """Of the swing, in the answer's unit."""
        return self.high - self.low


def tornado(
    function: Callable[[Draws], Mapping[str, Array]],
    inputs: Mapping[str, Input],
    answer: str,
    confidence: float = CONFIDENCE,
    draws: int = DRAWS // 4,
) -> list[Swing]:
    """What one answer hangs on: a Swing for every input that moves it, the widest first."""
    swings = []
    for name in inputs:
        ends = _ends(function(draw_inputs(inputs, name, draws))[answer], confidence)
        swings.append(Swing(name, *ends))
    scale = max((abs(s.high) for s in swings), default=0.0)
    return sorted((s for s in swings if s.width > 1e-12 * scale), key=lambda s: -s.width)


def _ends(values: Array | Sequence[float], confidence: float) -> tuple[float, float]:
    ends = ((1 - confidence) / 2, (1 + confidence) / 2)
    low, high = np.quantile(values, ends, method="nearest")  # which lets an end be infinite
    return float(low), float(high)
