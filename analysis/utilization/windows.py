"""Widens a utilization's interval to cover other windows of the run, by how much repeated cells differ.

A window is the time in which one cell was measured. Repeats in fresh processes minutes apart differ more than one
window shows: clocks, memory, other processes, placement. `widened` takes `Utilization` rows and returns them with wider
intervals. All variances are of logarithms. s² is the variance of repeats around their cell's mean, pooled over the
run's repeated cells. The variance between windows is s² less the mean variance within the windows. One window's half
width is Student's t × √(the window's own variance + the variance between windows). The half width of a mean of n
repeats is t × s ÷ √n, unless these repeats scatter more than other cells' (F test). Not claimed: that all cells scatter
equally, or that windows of other days differ no more. docs/benchmarks.md has the observed coverage.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from analysis.stats.summary import geometric_mean, log_interval, t_quantile
from results.records.answers import Utilization
from results.records.rows import replace_fields

LEAST_DEGREES = 4
"""Degrees of freedom below which nothing is pooled: a single cell with three repeats is too few."""

OWN_LEVEL = 0.01
"""Level of the F test for a cell that scatters more than the others."""

_NORMAL = 1.959964
"""Half of a 95 % interval ÷ its standard error, where its degrees of freedom are unknown."""


@dataclass(frozen=True)
class Window:
    """A positive value measured in one window, and its 95 % interval there."""

    value: float
    low: float
    high: float

    @property
    def variance(self) -> float:
        """Variance of the value's logarithm, from its interval."""
        return float((math.log(self.high / self.low) / 2 / _NORMAL) ** 2)


class Pool(NamedTuple):
    """Key of the cells whose repeats are pooled: a device, a kind of peak, and a numerator."""

    device: str
    denominator: str
    method: str
    numerator_source: str


@dataclass(frozen=True)
class BetweenWindows:
    """Differences between windows.

    variance: of the logarithm, beyond the windows' own. degrees: of freedom. cells: number of repeated cells.
    deviation: standard deviation of the logarithm of repeats, the windows' own included.
    """

    variance: float
    degrees: int
    cells: int
    deviation: float

    def largest_variance(self, degrees: int) -> float:
        """Return the largest variance of the logarithms of a cell's repeats that the F test accepts. degrees: of
        freedom."""
        from scipy.special import fdtri

        return float(self.deviation**2 * fdtri(degrees, self.degrees, 1 - OWN_LEVEL))

    def interval(self, window: Window) -> tuple[float, float]:
        """Return (low, high) of a window's value, with the differences between windows."""
        half = t_quantile(self.degrees) * math.sqrt(window.variance + self.variance)
        return log_interval(window.value, window.value * half)


def mean_of_repeats(values: Sequence[float], between: BetweenWindows | None) -> tuple[float, float, float]:
    """Return (mean, low, high) of a cell's repeats: their geometric mean and its 95 % interval, from the pooled
    scatter.

    Their own scatter is used where nothing is pooled, or where it is larger than the pooled one at `OWN_LEVEL`. Raises
    ValueError for fewer than two.
    """
    mean, low, high = geometric_mean(values)
    if between is None or _squares(values) / (len(values) - 1) > between.largest_variance(len(values) - 1):
        return mean, low, high
    half = t_quantile(between.degrees) * between.deviation / math.sqrt(len(values))
    return mean, *log_interval(mean, mean * half)


def between_windows(cells: Iterable[Sequence[Window]]) -> BetweenWindows | None:
    """Pool the repeats of each cell; single ones do not count. None with fewer degrees than `LEAST_DEGREES`.

    >>> windows = [Window(0.50, 0.49, 0.51), Window(0.52, 0.51, 0.53), Window(0.48, 0.47, 0.49)]
    >>> between_windows([windows]) is None, between_windows([windows, windows]).degrees
    (True, 4)
    """
    repeated = [windows for windows in cells if len(windows) > 1]
    degrees = sum(len(windows) - 1 for windows in repeated)
    if degrees < LEAST_DEGREES:
        return None
    total = sum(_squares([window.value for window in windows]) for windows in repeated) / degrees
    own = fmean(window.variance for windows in repeated for window in windows)
    return BetweenWindows(max(0.0, total - own), degrees, len(repeated), math.sqrt(total))


def _squares(values: Sequence[float]) -> float:
    """Sum the squared distances of the logarithms from their mean."""
    logs = [math.log(value) for value in values]
    mean = fmean(logs)
    return sum((log - mean) ** 2 for log in logs)


def widened(rows: Sequence[Utilization]) -> tuple[Utilization, ...]:
    """Return a run's rows in order, with `windows_low_ratio` and `windows_high_ratio` where cells were repeated."""
    pooled = pools(rows) if any(row.repeat for row in rows) else {}
    if not any(pooled.values()):
        return tuple(rows)
    table = []
    for row in rows:
        between, window = pooled.get(pool_of(row)), _window(row)
        if between is not None and window is not None:
            low, high = between.interval(window)
            row = replace_fields(row, {"windows_low_ratio": low, "windows_high_ratio": high})
        table.append(row)
    return tuple(table)


def pools(rows: Iterable[Utilization]) -> dict[Pool, BetweenWindows | None]:
    """Return pool (`pool_of`) → differences between the windows of its cells. Repeats over different measured ceilings
    count as different cells."""
    cells: dict[Pool, dict[tuple[object, ...], dict[int, Window]]] = {}
    for row in rows:
        if (window := _window(row)) is not None:
            cells.setdefault(pool_of(row), {}).setdefault(cell_of(row), {})[row.repeat] = window
    return {pool: between_windows([tuple(own.values()) for own in same.values()]) for pool, same in cells.items()}


def pool_of(row: Utilization) -> Pool:
    return Pool(row.device, row.denominator, row.method, row.numerator_source)


def cell_of(row: Utilization) -> tuple[object, ...]:
    """Return the key that a cell's repeats share within a pool."""
    ceiling = (row.peak_flop_per_s, row.peak_source) if row.denominator == "ceiling" else ()
    return row.model, row.batch_size, row.precision, row.variant, ceiling


def _window(row: Utilization) -> Window | None:
    """Return the row's window; None without a positive ratio between two ends (a time's interval may reach below 0)."""
    ratio, low, high = row.utilization_ratio, row.utilization_low_ratio, row.utilization_high_ratio
    if ratio is None or low is None or high is None or not 0 < low <= ratio <= high < math.inf:
        return None
    return Window(ratio, low, high)
