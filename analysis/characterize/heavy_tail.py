"""How unequal times are: how many single calls take longer than t, and which steps took much longer than others.

Fathom's tools draw the survival curve of the calls' times and fit an exponential, a Pareto and a log-normal to it. Here
each is fitted by greatest likelihood to all times from the shortest, x0, on: the exponential of x - x0 with mean
Σ(x - x0)/n, the Pareto with α = n / Σ ln(x/x0) (Clauset, Shalizi and Newman, SIAM Review 51, 2009, whose exponent is
α + 1), the log-normal with mean and deviation of ln x. They are compared by Akaike's criterion, 2 k - 2 ln L, and each
given with its greatest distance from the observed survival (Kolmogorov's).

Not claimed: that the best of the three fits well; of thousands of calls none would pass a test. Times of calls are
those under the profiler, where a call takes a microsecond or so at least.

`slow_steps` says whether a processor worked on a slow step meanwhile.
A step on a CPU can be slow by its own numbers: with subnormal ones (smaller than 1.2e-38 in float32) arithmetic takes
many times as long, and one step of a network without normalisation can have millions where the next has none. Or others
had the processor. The process's own processor time tells the two apart.

Not claimed: that numbers are the reason where the processor was busy; a step that does more would look the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from results.records.characterization import WARM_UP, Characterization, RecordedStep, WorkloadRecording

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


TIMES = 2.0
"""As long as the median of the others: longer is slow."""

FEWEST_STEPS = 3
"""Steps of a part, warming up left out, of which one can be said to be slow."""

BUSY = 0.8
"""Share of the time lost, from which on it was the process's own processor time."""


@dataclass(frozen=True)
class Slow:
    """The slowest step of a part. others_s: the others' median; busy: whether a processor worked on it, if known."""

    recording: WorkloadRecording
    step: RecordedStep
    others_s: float
    busy: bool | None


def slow_steps(data: Characterization) -> Iterator[Slow]:
    """One at most of each recording and part, where it took more than TIMES as long as the others."""
    for recording in data.recordings:
        mine = [each for each in data.steps if each.recording == recording.recording and each.part != WARM_UP]
        for part in dict.fromkeys(each.part for each in mine):
            steps = [each for each in mine if each.part == part]
            if len(steps) < FEWEST_STEPS:
                continue
            slowest = max(steps, key=lambda each: each.time_s)
            others = [each for each in steps if each is not slowest]
            usual_s = median(each.time_s for each in others)
            if slowest.time_s > TIMES * usual_s:
                yield Slow(recording, slowest, usual_s, _busy(slowest, others, usual_s))


def _busy(slow: RecordedStep, others: list[RecordedStep], usual_s: float) -> bool | None:
    used = [each.cpu_s for each in others if each.cpu_s is not None]
    if slow.cpu_s is None or len(used) < len(others):
        return None
    return slow.cpu_s - median(used) >= BUSY * (slow.time_s - usual_s)
