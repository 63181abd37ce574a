"""Whether two cells' step times differ: a ratio of means with its interval, two p-values, and a verdict.

* The ratio is compared on a logarithmic scale, where A against B is the negative of B against A; its error is Welch's
  (Biometrika 34, 1947): the two relative errors of the means in quadrature, with Satterthwaite's degrees of freedom
  (Biometrics Bulletin 2, 1946).
* Where both cells were repeated in fresh processes, the means of processes are the sample: what differs from process
  to process is the larger error and cannot be had from blocks (Kalibera and Jones, "Rigorous Benchmarking in Reasonable
  Time", ISMM 2013). Then *different* means different from 1.
* Where either has one process alone, blocks are the sample, with the effective number of `analysis/stats/summary.py`,
  as neighbours are correlated. What processes differ by is then not in the error, so that *different* means: beyond
  the margin (a minimum-effect test: Murphy and Myors, J. Appl. Psychology 84, 1999).
* *Same* is two one-sided tests that the ratio is within the margin (Schuirmann, J. Pharmacokinetics and
  Biopharmaceutics 15, 1987). Not different is not the same: what is neither is undecided.
* Several cells are several chances to be wrong: both p-values are Holm's over all cells (Scandinavian J. of Statistics
  6, 1979), so that no more than 5 in 100 comparisons of equal runs call any cell different. Intervals are of each cell
  by itself, 95 %.

Assumed: block means are near normal, and a cell's device stays as it was. Not claimed: why two cells differ.

`conditions` are the parameters of a cell that decide how long its step takes, so that cells of two runs can be
identified as the same. The others say what else was asked of a cell (which counters, which profiles, how narrow an
interval), which repetition it is, or how weights and data were drawn; a cell's id is made of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats.summary import CONFIDENCE, Summary, summarise, t_quantile
from results.records.cell import Parameters, Run
from results.records.comparisons import FASTER, SAME, SLOWER, UNKNOWN
from results.records.rows import header, to_text

PROCESSES, BLOCKS = "processes", "blocks"

ALARM_RATIO = 0.05
"""Of comparisons of equal runs, how many may call any cell different."""

MARGIN_RATIO = {"cuda": 0.03, "cpu": 0.10}
"""What fresh processes of one cell differ by without a cause: less does not matter. 38 of 39 single H100 were within
0.6 %, one 3.7 % below (Lambda's deeplearning-benchmark); steps of a CPU that is shared vary by 11 %."""

LEVEL = 1 - CONFIDENCE

Times = Sequence[float]
"""Mean step times of the blocks of one process, s, in order of time."""


@dataclass(frozen=True)
class Mean:
    """A mean step time, s, with its relative standard error and degrees of freedom; error None: it cannot be had."""

    mean_s: float
    error_ratio: float | None
    degrees: float


@dataclass(frozen=True)
class Difference:
    """B against A. ratio of mean times with its 95 % interval; p-values of this pair alone. None: no error is known."""

    ratio: float
    low_ratio: float | None
    high_ratio: float | None
    p_different: float | None
    p_same: float | None
    basis: str


def difference(a: Sequence[Times], b: Sequence[Times], margin_ratio: float) -> Difference:
    """B against A, each as the block means of its processes. Raises ValueError for a side without blocks.

    margin_ratio: 0.03 means from 1 ÷ 1.03 to 1.03.
    """
    if not (a and b and all(a) and all(b)):
        raise ValueError("expected blocks on both sides")
    if not margin_ratio > 0:
        raise ValueError(f"expected a margin above 0, got {margin_ratio}")
    basis = PROCESSES if min(len(a), len(b)) > 1 else BLOCKS
    first, second = (_of_processes(side) if basis == PROCESSES else _of_blocks(side) for side in (a, b))
    ratio = second.mean_s / first.mean_s
    if first.error_ratio is None or second.error_ratio is None:
        return Difference(ratio, None, None, None, None, basis)
    error = math.hypot(first.error_ratio, second.error_ratio)
    degrees = _degrees(first, second, error)
    width, centre, margin = t_quantile(degrees) * error, math.log(ratio), math.log1p(margin_ratio)
    return Difference(
        ratio=ratio,
        low_ratio=math.exp(centre - width),
        high_ratio=math.exp(centre + width),
        p_different=_p_beyond(centre, 0.0 if basis == PROCESSES else margin, error, degrees),
        p_same=max(_upper(margin - centre, error, degrees), _upper(margin + centre, error, degrees)),
        basis=basis,
    )


def interval_at(a: Sequence[Times], b: Sequence[Times], alarm_ratio: float) -> tuple[float, float] | None:
    """Time of B ÷ time of A that is missed with this chance; None where no error is known.

    What processes differ by is not in it where a side has one alone. Raises ValueError for a side without blocks.
    """
    from scipy.special import stdtrit  # 0.3 s to import: not for a command's --help

    if not (a and b and all(a) and all(b)):
        raise ValueError("expected blocks on both sides")
    of_side = _of_processes if min(len(a), len(b)) > 1 else _of_blocks
    first, second = of_side(a), of_side(b)
    if first.error_ratio is None or second.error_ratio is None:
        return None
    error = math.hypot(first.error_ratio, second.error_ratio)
    half = float(stdtrit(_degrees(first, second, error), 1 - alarm_ratio / 2)) * error
    ratio = second.mean_s / first.mean_s
    return ratio * math.exp(-half), ratio * math.exp(half)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value adjusted for how many there are, by Holm's step-down procedure; unknown ones stay unknown."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[i] = least
    return adjusted


def verdict(ratio: float, p_different: float | None, p_same: float | None) -> str:
    """What may be said of B at 5 %, from p-values over all cells. A difference within the margin is none."""
    if p_same is not None and p_same < LEVEL:
        return SAME
    if p_different is not None and p_different < LEVEL:
        return FASTER if ratio < 1 else SLOWER
    return UNKNOWN


def _of_processes(side: Sequence[Times]) -> Mean:
    """The mean of the processes' means; they are independent, so that their own scatter is the error."""
    means = [summarise(times).mean for times in side]
    n, mean = len(means), sum(means) / len(means)
    variance = sum((each - mean) ** 2 for each in means) / (n - 1)
    return Mean(mean, math.sqrt(variance / n) / mean, n - 1)


def _of_blocks(side: Sequence[Times]) -> Mean:
    """The mean over processes, whose error is that of their blocks alone."""
    parts = [_of_process(summarise(times)) for times in side]
    mean_s = sum(part.mean_s for part in parts) / len(parts)
    errors = [None if part.error_ratio is None else part.error_ratio * part.mean_s for part in parts]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return Mean(mean_s, None, 0.0)
    error_s = math.hypot(*known) / len(parts)
    shares = [(error / len(parts)) ** 4 / part.degrees for error, part in zip(known, parts, strict=True)]
    degrees = error_s**4 / sum(shares) if sum(shares) > 0 else min(part.degrees for part in parts)
    return Mean(mean_s, error_s / mean_s, degrees)


def _of_process(summary: Summary) -> Mean:
    degrees = summary.effective_n - 1
    if summary.half_width_ratio is None or degrees <= 0:
        return Mean(summary.mean, None, 0.0)
    return Mean(summary.mean, summary.half_width_ratio / t_quantile(degrees), degrees)


def _degrees(a: Mean, b: Mean, error: float) -> float:
    """Satterthwaite's degrees of freedom of the sum of two errors; the lesser one's where there is no error at all."""
    parts = [(mean.error_ratio or 0.0) ** 4 / mean.degrees for mean in (a, b)]
    return error**4 / sum(parts) if sum(parts) > 0 else min(a.degrees, b.degrees)


def _p_beyond(centre: float, margin: float, error: float, degrees: float) -> float:
    """p of the hypothesis that the true distance from 0 is no more than the margin; without margin the usual two-sided
    one."""
    distance = abs(centre)
    return min(1.0, _upper(distance - margin, error, degrees) + _upper(distance + margin, error, degrees))


def _upper(distance: float, error: float, degrees: float) -> float:
    """Probability that Student's t is above distance ÷ error."""
    from scipy.special import stdtr  # 0.3 s to import: not for a command's --help

    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(degrees, -distance / error))


ASKED = (
    "methods", "counters", "target_ci_ratio", "quick", "repeat", "seed", "epoch_images", "profile", "model_digest",
)  # fmt: skip
"""Parameters that leave the training step as it is; and the files of a model, since a comparison asks what a change in
them does to its time."""

OF_A_STEP = tuple(name for name in header(Parameters) if name not in ASKED)
"""Parameters that change it."""


def conditions(run: Run, *but_for: str) -> tuple[str, ...]:
    """The texts of what decides a step, in the order of OF_A_STEP; of the parameters `but_for` empty ones.

    A device is its kind: cuda:0 and cuda:1 of equal cards train at one speed.
    """
    texts = {name: to_text(getattr(run, name)) for name in OF_A_STEP}
    texts["device"] = run.device.partition(":")[0]
    return tuple("" if name in but_for else texts[name] for name in OF_A_STEP)
