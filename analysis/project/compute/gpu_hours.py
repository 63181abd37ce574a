"""Training compute from GPU-hours and back: FLOP = devices × time × peak × utilization, with an interval.

The peak is the datasheet's. The utilization of a run that nobody measured is predicted from runs that were published
(`analysis/project/compute/published_runs.py`), as the outcome of one *new* run by somebody else, not as a mean of the
old ones. Runs of one stack (who ran which software) resemble each other, so rows are no independent sample: the model
is a random effect of the stack and one of the run within it, on the logit scale (log for fp32, where fast algorithms go
beyond 1):

* location: the mean of the means of the stacks that have runs on devices of the same generation;
* spread² = S² (1 + 1/k) + W² (1 − 1/n): S² is the variance of stack means around the mean of their generation and
  class, pooled over all generations, and over half and tf32; W² the variance of runs around the mean of their stack,
  pooled likewise; k the stacks that the location is of; n the harmonic mean of runs a stack. S² holds W²/n already,
  which the last term allows for;
* Student's t, with the degrees of freedom of that sum by Satterthwaite (Biometrics Bulletin 2, 1946), but no more than
  there are between stacks: a new run is of a new stack, and how stacks differ is what few of them can tell.

Where a generation has no run, stacks of all generations are taken as one group, and it is said; where there is too
little for a spread (fewer than two degrees between stacks), there is no interval, and `TooFew` says what there is.

It is not claimed that published runs are like yours: publishers choose what they publish. Utilization is of model FLOP
(MFU): recomputed activations, padding and failed runs are in the hours but not in the FLOP. The hours are those of
training steps; evaluation, checkpoints and waiting lower the fraction further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, harmonic_mean

import numpy as np

from analysis.project.compute.published_runs import Observation
from analysis.stats import SCALES, Uncertain

SECONDS_PER_HOUR = 3600

TENSOR_CLASSES = ("half", "tf32")
"""Classes on the logit scale, whose runs are taken to have one spread."""

FEWEST_DEGREES = 2
"""Of freedom between stacks, without which no spread is given."""

RULES_OF_THUMB: Mapping[str, float] = {"language-model": 0.30, "": 0.40}
"""What estimators assume when nothing is known: Epoch AI, "Estimating training compute of deep learning models",
2022. "": any other family. Printed for contrast, never used."""


class TooFew(ValueError):
    """Not enough published runs for an interval."""


@dataclass(frozen=True)
class VarianceComponents:
    """Variances on the scale. between, within: S² and W²; degrees of each; harmonic: runs a stack."""

    between: float
    within: float
    between_degrees: int
    within_degrees: int
    harmonic: float

    def of_new_run(self, stacks: int) -> tuple[float, float]:
        """(standard deviation, degrees of freedom) of a new stack's run around the mean of so many stacks."""
        first = self.between * (1 + 1 / stacks)
        second = self.within * (1 - 1 / self.harmonic)
        inverse = first**2 / self.between_degrees + (second**2 / self.within_degrees if self.within_degrees else 0.0)
        degrees = (first + second) ** 2 / inverse if inverse else math.inf
        return math.sqrt(first + second), min(degrees, float(self.between_degrees))


@dataclass(frozen=True)
class PredictedUtilization:
    """The utilization of a new run. group: what it is predicted from; fallback: why not from closer runs, else "".

    near: the runs that the location is of; rows: those that the spread is of. stacks: that the location is of.
    """

    utilization: Uncertain
    group: str
    fallback: str
    near: tuple[Observation, ...]
    rows: tuple[Observation, ...]
    stacks: int
    degrees: float


def predicted_utilization(
    runs: Iterable[Observation], family: str, generation: str, precision_class: str
) -> PredictedUtilization:
    """The utilization of one new training run of a family on a device of this generation under this class.

    Raises TooFew where the runs of the family say nothing of how runs differ, or none is under this class.
    """
    classes = TENSOR_CLASSES if precision_class in TENSOR_CLASSES else (precision_class,)
    rows = [row for row in runs if row.family == family and row.precision_class in classes]
    own = [row for row in rows if row.precision_class == precision_class]
    here = [row for row in own if row.generation == generation]
    scale = "logit" if precision_class in TENSOR_CLASSES else "log"
    group = f"{family} under {precision_class}"
    why = f"no published run of {group} on {generation}: those of other generations taken together"
    if here:
        try:
            return _from(rows, here, _by_generation, scale, f"{group} on {generation}", "")
        except TooFew:
            why = f"too few stacks to know how runs of one generation differ: all {group} taken together"
    return _from(rows, own, _pool_key, scale, f"{group} on any device", why)


Stratum = Callable[[Observation], tuple[Hashable, Hashable]]
"""Row → (stratum, stack)."""


def _by_generation(row: Observation) -> tuple[Hashable, Hashable]:
    return (row.precision_class, row.generation), row.stack


def _pool_key(row: Observation) -> tuple[Hashable, Hashable]:
    """All generations as one; a stack counts once a generation."""
    return row.precision_class, (row.stack, row.generation)


def _from(
    rows: Sequence[Observation], near: Sequence[Observation], stratum: Stratum, scale: str, group: str, fallback: str
) -> PredictedUtilization:
    """From rows in strata, of which `near` is one."""
    strata: dict[Hashable, dict[Hashable, list[float]]] = {}
    for row in rows:
        name, stack = stratum(row)
        value = float(SCALES[scale][0](np.asarray(row.ratio, dtype=np.float64)))
        strata.setdefault(name, {}).setdefault(stack, []).append(value)
    spread = pooled([list(stacks.values()) for stacks in strata.values()])
    if not near or spread.between_degrees < FEWEST_DEGREES:
        raise TooFew(_too_few(group, near))
    stacks = strata[stratum(near[0])[0]]
    deviation, degrees = spread.of_new_run(len(stacks))
    location = fmean(fmean(values) for values in stacks.values())
    where = Uncertain(location, deviation, degrees, scale)
    return PredictedUtilization(where, group, fallback, tuple(near), tuple(rows), len(stacks), degrees)


def pooled(strata: Iterable[Sequence[Sequence[float]]]) -> VarianceComponents:
    """S² and W² of values in stacks in strata."""
    between = within = 0.0
    between_degrees = within_degrees = 0
    sizes: list[int] = []
    for stacks in strata:
        sizes += [len(values) for values in stacks]
        means = [fmean(values) for values in stacks]
        centre = fmean(means)
        between += sum((mean - centre) ** 2 for mean in means)
        between_degrees += len(means) - 1
        for values, mean in zip(stacks, means, strict=True):
            within += sum((value - mean) ** 2 for value in values)
            within_degrees += len(values) - 1
    return VarianceComponents(
        between / between_degrees if between_degrees else math.nan,
        within / within_degrees if within_degrees else 0.0,
        between_degrees,
        within_degrees,
        harmonic_mean(sizes) if sizes else math.nan,
    )


def _too_few(group: str, rows: Sequence[Observation]) -> str:
    if not rows:
        return f"no published run of {group}"
    ratios, stacks = [row.ratio for row in rows], {row.stack for row in rows}
    return (
        f"{group}: {_many(len(rows), 'published run')} of {_many(len(stacks), 'stack')} "
        f"({min(ratios):.3f} to {max(ratios):.3f}), too few for an interval"
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def flop_of(gpu_hours: float, peak_flop_per_s: float, ratio: float) -> float:
    """Training FLOP of so many device-hours."""
    return gpu_hours * SECONDS_PER_HOUR * peak_flop_per_s * ratio


def gpu_hours_of(flop: float, peak_flop_per_s: float, ratio: float) -> float:
    """Device-hours that so many FLOP take."""
    return flop / (peak_flop_per_s * ratio * SECONDS_PER_HOUR)


@dataclass(frozen=True)
class HeldOut:
    """Of a prediction from all other stacks for each run of one: how many runs it holds. asked: the confidence."""

    asked: float
    held: int
    runs: int
    stacks_held: float
    stacks: int


def left_out(found: Sequence[Observation], confidence: float) -> HeldOut:
    """Leave one stack out: predict each of its runs from the others, and count how many lie in the interval.

    stacks_held: the mean share over stacks, which one stack with many runs does not rule. Runs that the others say
    nothing of are not counted.
    """
    shares: list[float] = []
    held = runs = 0
    for stack in dict.fromkeys((row.stack, row.family, row.precision_class) for row in found):
        mine = [row for row in found if (row.stack, row.family, row.precision_class) == stack]
        others = [row for row in found if row.stack != stack[0]]
        inside = []
        for row in mine:
            try:
                where = predicted_utilization(others, row.family, row.generation, row.precision_class)
            except TooFew:
                continue
            low, high = where.utilization.interval(confidence)
            inside.append(low <= row.ratio <= high)
        if inside:
            held, runs = held + sum(inside), runs + len(inside)
            shares.append(sum(inside) / len(inside))
    return HeldOut(confidence, held, runs, fmean(shares) if shares else math.nan, len(shares))
