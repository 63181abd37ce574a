"""Decides whether two cells' step times differ: a ratio of means with its interval, two p-values, and a verdict.

A cell is one combination of workload, batch size, precision and options. `relative_difference` takes sessions with a
paired ceiling: kernels timed between the blocks of steps. Otherwise `difference` takes fresh processes or, with one
process on a side, its blocks. Both return a `Difference`. *Different* means a ratio other than 1. With blocks, it means
a ratio beyond the margin (Murphy and Myors, J. Appl. Psychology 84, 1999): blocks do not show differences between
processes. *Same* is two one-sided tests that the ratio is within the margin (Schuirmann, J. Pharmacokinetics and
Biopharmaceutics 15, 1987). Anything else is undecided. Assumed: near-normal block means, and a device that stays as it
was. Not claimed: why two cells differ. `conditions` identifies the same cell in two runs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from analysis.stats.summary import CONFIDENCE, summarise, t_quantile
from results.records.answers import FASTER, SAME, SLOWER, UNKNOWN
from results.records.cell import Parameters, Run
from results.records.rows import columns_of, to_text

PROCESSES, BLOCKS, SESSIONS = "processes", "blocks", "sessions"

ALARM_RATIO = 0.05
"""Largest share of comparisons of equal runs that may call any cell different."""

MARGIN_RATIO = {"cuda": 0.03, "cpu": 0.10}
"""How much equal processes of one cell may differ. 38 of 39 single H100 were within 0.6 %, one 3.7 % below (Lambda's
deeplearning-benchmark); steps of a shared CPU vary by 11 %."""

LEVEL = 1 - CONFIDENCE

LEAST_DEGREES = 4
"""Degrees of freedom below which the variance of sessions is unknown."""

PRIOR_DEGREES = 20
"""Maximum degrees of freedom of the pooled variance of sessions, where it is combined with a cell's variance. They are
limited because cells scatter unequally."""

HOURS = 1.0
"""Variance between runs hours apart ÷ variance between sessions of one run: about twice the 0.45 of the three runs of
2026-11-28, which are few."""

Times = Sequence[float]
"""Mean step times of the blocks of one process, s, in order."""


@dataclass(frozen=True)
class MeanTime:
    """A mean step time, s, with its relative standard error and degrees of freedom; error None: unavailable."""

    mean_s: float
    error_ratio: float | None
    degrees: float


Session = Sequence[tuple[float, float]]
"""One session: for each window, the logarithm of its relative step time, and that value's variance by its blocks."""


@dataclass(frozen=True)
class Difference:
    """B against A. ratio: of mean times; error_ratio, degrees: its relative standard error and degrees of freedom;
    p-values: of this pair only. None: the error is unknown."""

    ratio: float
    error_ratio: float | None
    degrees: float
    p_different: float | None
    p_same: float | None
    basis: str

    def interval(self, alarm_ratio: float = LEVEL) -> tuple[float, float] | tuple[None, None]:
        """Return the interval of B's time ÷ A's time that misses the true ratio with this probability. With blocks as
        the sample, it does not cover differences between processes."""
        half = resolution(self.error_ratio, self.degrees, alarm_ratio)
        return (None, None) if half is None else (self.ratio / (1 + half), self.ratio * (1 + half))


def resolution(error_ratio: float | None, degrees: float, alarm_ratio: float) -> float | None:
    """Return the least relative difference that is distinguishable from chance (0.05: 5 %); None if the error is
    unknown."""
    from scipy.special import stdtrit  # 0.3 s to import: not for a command's --help

    return None if error_ratio is None else math.expm1(float(stdtrit(degrees, 1 - alarm_ratio / 2)) * error_ratio)


def difference(a: Sequence[Times], b: Sequence[Times], margin_ratio: float) -> Difference:
    """Compare B with A, each as the block means of its processes. margin_ratio: 0.03 means from 1 ÷ 1.03 to 1.03.

    On a logarithmic scale; the relative errors of the means add in quadrature (Welch, Biometrika 34, 1947) with
    Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 1946). Where both have several processes, their means are
    the sample: differences between processes are the larger error, and blocks do not show them (Kalibera and Jones,
    "Rigorous Benchmarking in Reasonable Time", ISMM 2013). Otherwise blocks are, with the effective number of
    `analysis/stats/summary.py`.
    """
    basis = PROCESSES if min(len(a), len(b)) > 1 else BLOCKS
    if basis == PROCESSES:  # they are independent, so that the scatter of their means is the error
        means = [[summarise(times).mean for times in side] for side in (a, b)]
        errors = (math.sqrt(variance(side) / len(side)) / fmean(side) for side in means)
        first, second = (MeanTime(fmean(side), error, len(side) - 1) for side, error in zip(means, errors, strict=True))
    else:
        first, second = map(_of_blocks, (a, b))
    ratio = second.mean_s / first.mean_s
    if first.error_ratio is None or second.error_ratio is None:
        return Difference(ratio, None, 0.0, None, None, basis)
    error = math.hypot(first.error_ratio, second.error_ratio)
    # satterthwaite's degrees of freedom of the sum of two errors; the smaller of the two where both errors are 0
    parts = [(mean.error_ratio or 0.0) ** 4 / mean.degrees for mean in (first, second)]
    return _tested(
        ratio,
        error,
        error**4 / sum(parts) if sum(parts) > 0 else min(first.degrees, second.degrees),
        margin_ratio,
        basis,
    )


def scatter(sides: Iterable[Sequence[Session]]) -> tuple[float, int]:
    """Return (variance of sessions' means around their side's mean, its degrees of freedom), pooled over sides."""
    logs = [[fmean(log for log, _ in session) for session in side] for side in sides if len(side) > 1]
    degrees = sum(len(means) - 1 for means in logs)
    squares = sum(variance(means) * (len(means) - 1) for means in logs)
    return (squares / degrees if degrees else 0.0), degrees


def relative_difference(
    a: Sequence[Session], b: Sequence[Session], pooled: tuple[float, int], margin_ratio: float
) -> Difference:
    """Compare B with A by their sessions, at least one on each side. pooled: `scatter` of all cells of both runs.

    The pooled variance is combined with the cell's (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004). HOURS times the
    result is added on each side for the difference between runs, which sessions of one run do not show. With too few
    sessions, the standard deviation is taken to be half the margin.
    """
    own, own_degrees = scatter((a, b))
    prior, prior_degrees = pooled[0], min(PRIOR_DEGREES, pooled[1] - own_degrees)
    if not own_degrees and pooled[1] < LEAST_DEGREES:
        prior, prior_degrees = (math.log1p(margin_ratio) / 2) ** 2, PRIOR_DEGREES // 2
    degrees = own_degrees + prior_degrees
    within = fmean(square for side in (a, b) for session in side for _, square in session)
    spread = max(within, prior, (own * own_degrees + prior * prior_degrees) / degrees)
    first, second = (fmean(fmean(log for log, _ in session) for session in side) for side in (a, b))
    error = math.sqrt(spread * (1 / len(a) + 1 / len(b) + 2 * HOURS))
    return _tested(math.exp(second - first), error, degrees, margin_ratio, SESSIONS)


def _tested(ratio: float, error: float, degrees: float, margin_ratio: float, basis: str) -> Difference:
    centre, margin = math.log(ratio), math.log1p(margin_ratio)
    distance, least = abs(centre), margin if basis == BLOCKS else 0.0  # without a margin the usual two-sided test
    return Difference(
        ratio=ratio,
        error_ratio=error,
        degrees=degrees,
        p_different=min(1.0, _upper(distance - least, error, degrees) + _upper(distance + least, error, degrees)),
        p_same=max(_upper(margin - centre, error, degrees), _upper(margin + centre, error, degrees)),
        basis=basis,
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for their number by Holm's step-down procedure (Scandinavian J. of Statistics 6, 1979), so that
    no more than 5 in 100 comparisons of equal runs call any cell different. Unknown p-values stay None."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[i] = least
    return adjusted


def verdict(ratio: float, p_different: float | None, p_same: float | None, basis: str = BLOCKS) -> str:
    """Return the verdict on B at a level of 5 %. p_different, p_same: adjusted for the number of cells. B is the same
    if the ratio is within the margin, unless sessions show a difference."""
    differs, is_same = (p is not None and p < LEVEL for p in (p_different, p_same))
    if is_same and not (differs and basis == SESSIONS):
        return SAME
    return (FASTER if ratio < 1 else SLOWER) if differs else UNKNOWN


def _of_blocks(side: Sequence[Times]) -> MeanTime:
    """Return the mean over processes with the error of their blocks only."""
    parts = [summarise(times) for times in side]
    mean_s, squared, fourth, degrees = fmean(part.mean for part in parts), 0.0, 0.0, list[float]()
    for part in parts:
        degrees.append(part.effective_n - 1)
        if part.half_width_ratio is None or degrees[-1] <= 0:
            return MeanTime(mean_s, None, 0.0)
        error_s = part.half_width_ratio * part.mean / t_quantile(degrees[-1]) / len(parts)
        squared, fourth = squared + error_s**2, fourth + error_s**4 / degrees[-1]
    return MeanTime(mean_s, math.sqrt(squared) / mean_s, squared**2 / fourth if fourth > 0 else min(degrees))


def _upper(distance: float, error: float, degrees: float) -> float:
    """Return the probability that Student's t exceeds distance ÷ error."""
    from scipy.special import stdtr  # 0.3 s to import: not for a command's --help

    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(degrees, -distance / error))


OF_A_STEP = tuple(name for name, column in columns_of(Parameters).items() if not column.is_request)
"""Parameters that change the training step. The digest of a model's files is left out: a comparison may ask how a
change in them affects the time."""


def conditions(run: Run, *but_for: str) -> tuple[str, ...]:
    """Return the texts of the parameters that decide a step's time, in the order of OF_A_STEP; "" for those in
    `but_for`. Of a device, only its kind is used: equal cards cuda:0 and cuda:1 train at one speed."""
    texts = {name: to_text(getattr(run, name)) for name in OF_A_STEP}
    texts["device"] = run.device.partition(":")[0]
    return tuple("" if name in but_for else texts[name] for name in OF_A_STEP)
