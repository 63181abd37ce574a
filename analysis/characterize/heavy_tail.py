"""How unequal the times of single calls are: how many take longer than t, and which of three laws that follows.

Fathom's tools draw the survival curve of the calls' times and fit an exponential, a Pareto and a log-normal to it. Here
each is fitted by greatest likelihood to all times from the shortest, x0, on: the exponential of x - x0 with mean
Σ(x - x0)/n, the Pareto with α = n / Σ ln(x/x0) (Clauset, Shalizi and Newman, SIAM Review 51, 2009, whose exponent is
α + 1), the log-normal with mean and deviation of ln x. They are compared by Akaike's criterion, 2 k - 2 ln L, and each
given with its greatest distance from the observed survival (Kolmogorov's).

Not claimed: that the best of the three fits well; of thousands of calls none would pass a test. Times of calls are
those under the profiler, where a call takes a microsecond or so at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

FEWEST = 10
"""Calls below which nothing is fitted."""


@dataclass(frozen=True)
class LawFit:
    """One law. parameters: by name; aic: lower is better; distance: greatest between the survivals."""

    law: str
    parameters: Mapping[str, float]
    aic: float
    distance: float
    survival: Callable[[float], float]


@dataclass(frozen=True)
class Tail:
    """calls: how many; of the whole time the share of the longest hundredth and tenth of them; fits: the best first."""

    calls: int
    median_s: float
    longest_s: float
    top_1_ratio: float
    top_10_ratio: float
    fits: tuple[LawFit, ...]


def tail(times_s: Sequence[float]) -> Tail | None:
    """None for fewer than `FEWEST` times above 0; fits: none where all are equal."""
    known = sorted(time for time in times_s if time > 0)
    if len(known) < FEWEST:
        return None
    fits = () if known[0] == known[-1] else _fits(known)
    return Tail(
        calls=len(known),
        median_s=known[len(known) // 2],
        longest_s=known[-1],
        top_1_ratio=_of_the_longest(known, 0.01),
        top_10_ratio=_of_the_longest(known, 0.1),
        fits=tuple(sorted(fits, key=lambda fit: fit.aic)),
    )


def survival(times_s: Sequence[float]) -> list[tuple[float, float]]:
    """(time, share of the calls that take at least as long), the shortest first, each time once."""
    known = sorted(time for time in times_s if time > 0)
    found: dict[float, float] = {}
    for place, time in enumerate(known):
        found.setdefault(time, 1 - place / len(known))
    return list(found.items())


def _of_the_longest(ordered: Sequence[float], part: float) -> float:
    count = max(1, math.ceil(part * len(ordered)))
    return math.fsum(ordered[-count:]) / math.fsum(ordered)


def _fits(ordered: Sequence[float]) -> Iterator[LawFit]:
    """Each law by greatest likelihood; all have two parameters. Closed forms, as scipy has them."""
    from scipy import stats  # 1 s to import: not for a command's --help

    least = ordered[0]
    place, mean = stats.expon.fit(ordered)
    sigma, _, scale = stats.lognorm.fit(ordered, floc=0)
    alpha, _, _ = stats.pareto.fit(ordered, floc=0, fscale=least)
    laws = {
        "exponential": (stats.expon(place, mean), {"x0_s": least, "mean_s": mean}),
        "pareto": (stats.pareto(alpha, scale=least), {"x0_s": least, "alpha": alpha}),
        "log-normal": (stats.lognorm(sigma, scale=scale), {"mu": math.log(scale), "sigma": sigma}),
    }
    for name, (law, parameters) in laws.items():
        yield LawFit(
            name,
            {key: float(value) for key, value in parameters.items()},
            aic=float(2 * 2 - 2 * law.logpdf(ordered).sum()),
            distance=float(stats.kstest(ordered, law.cdf).statistic),
            survival=law.sf,
        )
