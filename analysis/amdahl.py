"""How much of a time does not shrink with more threads: Amdahl's law fitted to times at several thread counts.

T(n) = serial + parallel ÷ n (Amdahl, AFIPS 1967) is a straight line in 1/n: serial is where it meets 0, and the serial
share is serial ÷ (serial + parallel), of the time at one thread. The line is fitted by least squares through every
step's time, each count's steps weighted by one over their variance; the share's 95 % interval is Fieller's (J. R.
Stat. Soc. B 16, 1954) for the ratio of the two, with Student's t of all steps less two degrees of freedom. An interval
that Fieller's method leaves open is unknown. Beside it the serial share that each count alone gives with one thread:
Karp and Flatt, Commun. ACM 33, 1990, e = (1/speed-up - 1/n) ÷ (1 - 1/n).

A share below 0 is a speed-up above n (more cache), one above 1 a slow-down; both are told as they are. Not claimed:
that the law holds. `lack_of_fit` is the largest distance of a count's mean from the line, in standard errors: 0 with
two counts, which any line fits. More threads than processors measure something else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.statistics import t_quantile

_LEAST_SPREAD_RATIO = 1e-9
"""Of a count's mean: times that a clock cannot tell apart have a spread, too, for the weights."""


@dataclass(frozen=True)
class Amdahl:
    """A fit. serial_s, parallel_s: at one thread. serial_ratio: serial ÷ both, with its interval.

    speed_up: mean time at the fewest threads ÷ that at the most. karp_flatt: threads → serial share from one thread
    and these alone; empty where one thread was not timed.
    """

    serial_s: float
    parallel_s: float
    serial_ratio: float
    serial_low: float | None
    serial_high: float | None
    speed_up: float
    lack_of_fit: float
    karp_flatt: Mapping[int, float]

    def time_s(self, threads: int) -> float:
        """What the law gives."""
        return self.serial_s + self.parallel_s / threads


def amdahl(times_s: Mapping[int, Sequence[float]]) -> Amdahl | None:
    """The law fitted to threads → times of steps; None for times of no length.

    Raises ValueError below two counts, or without at least two steps at each.
    """
    if len(times_s) < 2 or min(map(len, times_s.values())) < 2 or min(times_s) < 1:
        told = {count: len(times) for count, times in times_s.items()}
        raise ValueError(f"expected two thread counts at least, and two steps at each, got steps by threads {told}")
    means = {count: statistics.fmean(times_s[count]) for count in sorted(times_s)}
    if min(means.values()) <= 0:
        return None
    weights = {count: 1 / _variance(times_s[count], means[count]) for count in means}
    serial, slope, covariance = _line(means, weights, {count: len(times_s[count]) for count in means})
    if serial + slope <= 0:
        return None
    low, high = _fieller(serial, slope, covariance, sum(map(len, times_s.values())) - 2)
    errors = {count: math.sqrt(1 / weights[count] / len(times_s[count])) for count in means}
    return Amdahl(
        serial_s=serial,
        parallel_s=slope,
        serial_ratio=serial / (serial + slope),
        serial_low=low,
        serial_high=high,
        speed_up=means[min(means)] / means[max(means)],
        lack_of_fit=max(abs(means[count] - serial - slope / count) / errors[count] for count in means),
        karp_flatt={count: karp_flatt(means[1] / means[count], count) for count in means if count > 1 and 1 in means},
    )


def karp_flatt(speed_up: float, threads: int) -> float:
    """The serial share that a speed-up over one thread shows. Raises ValueError for one thread or no speed."""
    if threads < 2 or not speed_up > 0:
        raise ValueError(f"expected two threads at least and a speed-up above 0, got {threads} and {speed_up}")
    return (1 / speed_up - 1 / threads) / (1 - 1 / threads)


def _variance(times_s: Sequence[float], mean_s: float) -> float:
    """Of one step."""
    return max(statistics.variance(times_s), (_LEAST_SPREAD_RATIO * mean_s) ** 2)


_Covariance = tuple[float, float, float]
"""Variance of the serial time, their covariance, variance of the parallel time."""


def _line(
    means: Mapping[int, float], weights: Mapping[int, float], steps: Mapping[int, int]
) -> tuple[float, float, _Covariance]:
    """Weighted least squares of mean times over 1 ÷ threads: (at 0, slope, their covariances)."""
    weight = {count: weights[count] * steps[count] for count in means}
    total = sum(weight.values())
    x = sum(weight[count] / count for count in means) / total
    y = sum(weight[count] * means[count] for count in means) / total
    across = sum(weight[count] * (1 / count - x) ** 2 for count in means)
    slope = sum(weight[count] * (1 / count - x) * (means[count] - y) for count in means) / across
    return y - slope * x, slope, (1 / total + x * x / across, -x / across, 1 / across)


def _fieller(serial: float, slope: float, covariance: _Covariance, degrees: int) -> tuple[float | None, float | None]:
    """The 95 % interval of serial ÷ (serial + slope): all shares that t cannot tell from it; None, None: it is open."""
    of_serial, both, of_slope = covariance
    whole = serial + slope
    of_whole, shared = of_serial + 2 * both + of_slope, of_serial + both
    t2 = t_quantile(max(1, degrees)) ** 2
    a = whole * whole - t2 * of_whole
    b = serial * whole - t2 * shared
    c = serial * serial - t2 * of_serial
    root = b * b - a * c
    if a <= 0 or root < 0:
        return None, None
    return (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
