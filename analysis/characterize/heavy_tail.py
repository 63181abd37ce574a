"""How unequal the times of single calls are: how many take longer than t, and which of three laws that follows.

Fathom's tools draw the survival curve of the calls' times and fit an exponential, a Pareto and a log-normal to it. Here
each is fitted by greatest likelihood to all times from the shortest, x0, on: the exponential of x - x0 with mean
Σ(x - x0)/n, the Pareto with α = n / Σ ln(x/x0) (Clauset, Shalizi and Newman, SIAM Review 51, 2009, whose exponent is
α + 1), the log-normal with mean and deviation of ln x. They are compared by Akaike's criterion, 2 k - 2 ln L, and each
told with its greatest distance from the observed survival (Kolmogorov's).

Not claimed: that the best of the three fits well; of thousands of calls none would pass a test. Times of calls are
those under the profiler, where a call takes a microsecond or so at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

LAWS = ("exponential", "pareto", "log-normal")

FEWEST = 10
"""Calls below which nothing is fitted."""


@dataclass(frozen=True)
class Fit:
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
    fits: tuple[Fit, ...]


def tail(times_s: Sequence[float]) -> Tail | None:
    """None for fewer than `FEWEST` times above 0; fits: none where all are equal."""
    known = sorted(time for time in times_s if time > 0)
    if len(known) < FEWEST:
        return None
    fits = [] if known[0] == known[-1] else [_exponential(known), _pareto(known), _log_normal(known)]
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


def _exponential(ordered: Sequence[float]) -> Fit:
    least, n = ordered[0], len(ordered)
    mean = math.fsum(time - least for time in ordered) / n
    likelihood = -n * math.log(mean) - n
    return _fit(
        "exponential", {"x0_s": least, "mean_s": mean}, likelihood, ordered, lambda t: math.exp((least - t) / mean)
    )


def _pareto(ordered: Sequence[float]) -> Fit:
    least, n = ordered[0], len(ordered)
    logs = math.fsum(math.log(time / least) for time in ordered)
    alpha = n / logs
    likelihood = n * math.log(alpha) - n * math.log(least) - (alpha + 1) * logs
    return _fit("pareto", {"x0_s": least, "alpha": alpha}, likelihood, ordered, lambda t: (least / t) ** alpha)


def _log_normal(ordered: Sequence[float]) -> Fit:
    n = len(ordered)
    logs = [math.log(time) for time in ordered]
    mu = math.fsum(logs) / n
    sigma = math.sqrt(math.fsum((log - mu) ** 2 for log in logs) / n)
    likelihood = -math.fsum(logs) - n * math.log(sigma * math.sqrt(2 * math.pi)) - n / 2
    return _fit(
        "log-normal",
        {"mu": mu, "sigma": sigma},
        likelihood,
        ordered,
        lambda t: math.erfc((math.log(t) - mu) / sigma / math.sqrt(2)) / 2,
    )


def _fit(
    law: str,
    parameters: Mapping[str, float],
    likelihood: float,
    ordered: Sequence[float],
    left: Callable[[float], float],
) -> Fit:
    """Each has two parameters."""
    n = len(ordered)
    distance = max(
        max(abs(left(time) - (1 - place / n)), abs(left(time) - (1 - (place + 1) / n)))
        for place, time in enumerate(ordered)
    )
    return Fit(law, parameters, 2 * 2 - 2 * likelihood, distance, left)
