"""How much of a time does not shrink with more threads: Amdahl's law fitted to times at several thread counts.

T(n) = serial + parallel ÷ n (Amdahl, AFIPS 1967) is a straight line in 1/n: serial is where it meets 0, and the serial
share is serial ÷ (serial + parallel), of the time at one thread. The line is fitted by least squares through the
counts' median steps, which a step that others slowed down does not move. Each is weighted by one over the square of its
error: 1.2533 σ/√k for a median of k normal values (Kenney and Keeping), σ from the median absolute deviation, × k ÷
(k - 0.8) for few (Croux and Rousseeuw 1992). The share's 95 % interval is Fieller's (J. R. Stat. Soc. B 16, 1954) for
the ratio of the two, with Student's t of all steps less two degrees of freedom. An interval that his method leaves open
is unknown. Beside it the serial share that each count alone gives with one thread: Karp and Flatt, Commun. ACM 33,
1990, e = (1/speed-up - 1/n) ÷ (1 - 1/n).

A share below 0 is a speed-up above n (more cache), one above 1 a slow-down; both are told as they are. Not claimed:
that the law holds. `lack_of_fit` is the largest distance of a count's median from the line, in its errors: 0 with
two counts, which any line fits. Seen in simulation: intervals hold the truth 93 to 96 times in 100 from eight steps a
count on, and 87 times with five steps at three counts. More threads than processors measure something else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.stats.summary import MAD_TO_SIGMA, t_quantile

_LEAST_SPREAD_RATIO = 1e-9
"""Of a count's median: times that a clock cannot tell apart have a spread, too, for the weights."""

_OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""The error of a median ÷ that of the mean, of many normal values."""


@dataclass(frozen=True)
class Amdahl:
    """A fit. serial_s, parallel_s: at one thread. serial_ratio: serial ÷ both, with its interval.

    speed_up: median time at the fewest threads ÷ that at the most. karp_flatt: threads → serial share from one thread
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
    middles = {count: statistics.median(times_s[count]) for count in sorted(times_s)}
    if min(middles.values()) <= 0:
        return None
    errors = {count: _error(times_s[count], middles[count]) for count in middles}
    serial, slope, covariance = _line(middles, errors)
    if serial + slope <= 0:
        return None
    low, high = _fieller(serial, slope, covariance, sum(map(len, times_s.values())) - 2)
    return Amdahl(
        serial_s=serial,
        parallel_s=slope,
        serial_ratio=serial / (serial + slope),
        serial_low=low,
        serial_high=high,
        speed_up=middles[min(middles)] / middles[max(middles)],
        lack_of_fit=max(abs(middles[count] - serial - slope / count) / errors[count] for count in middles),
        karp_flatt={
            count: karp_flatt(middles[1] / middles[count], count) for count in middles if 1 in middles and count > 1
        },
    )


def karp_flatt(speed_up: float, threads: int) -> float:
    """The serial share that a speed-up over one thread shows. Raises ValueError for one thread or no speed."""
    if threads < 2 or not speed_up > 0:
        raise ValueError(f"expected two threads at least and a speed-up above 0, got {threads} and {speed_up}")
    return (1 / speed_up - 1 / threads) / (1 - 1 / threads)


def _error(times_s: Sequence[float], middle_s: float) -> float:
    """Of the median."""
    count = len(times_s)
    deviation = statistics.median(abs(time - middle_s) for time in times_s)
    sigma = MAD_TO_SIGMA * deviation * count / (count - 0.8)
    return _OF_A_MEDIAN * max(sigma, _LEAST_SPREAD_RATIO * middle_s) / math.sqrt(count)


_Covariance = tuple[float, float, float]
"""Variance of the serial time, their covariance, variance of the parallel time."""


def _line(middles: Mapping[int, float], errors: Mapping[int, float]) -> tuple[float, float, _Covariance]:
    """Weighted least squares of times over 1 ÷ threads: (at 0, slope, their covariances)."""
    weight = {count: errors[count] ** -2 for count in middles}
    total = sum(weight.values())
    x = sum(weight[count] / count for count in middles) / total
    y = sum(weight[count] * middles[count] for count in middles) / total
    across = sum(weight[count] * (1 / count - x) ** 2 for count in middles)
    slope = sum(weight[count] * (1 / count - x) * (middles[count] - y) for count in middles) / across
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
