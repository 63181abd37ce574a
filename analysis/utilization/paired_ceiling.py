"""A ceiling that was timed between the blocks of a cell's steps, and the utilization of the two together.

A pair is a block of steps and, of each unit, the block of the ceiling's kernel beside it. The time that the step's FLOP
would take at the kernel's rate in this pair, ÷ the step time in it, would be the pair's utilization. Of all pairs, the
utilization is the ratio of the two means, and its interval is on a logarithmic scale: that of the mean of

    z = ideal time ÷ its mean - step time ÷ its mean,

the linearised logarithm of the ratio (delta method; Cochran, "Sampling Techniques", 3rd edition, section 6.3), with
the autocorrelation of neighbouring pairs in it (`analysis/stats/summary.py`). Both halves' noise is in it, and what
slows both down by one factor is not.

Pairs in which neither block waited for a processor are used if there are three of them, else all with a measured block.
Not claimed: that a neighbour slows down one kernel as it does a step. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis.stats.summary import LAG1, summarise
from analysis.utilization.step_times import ASIDE, block_means_s, is_disturbed
from results.errors import Unavailable
from results.records.samples import Sample

LEAST_PAIRS = 3


@dataclass(frozen=True)
class PairedUtilization:
    """A utilization. low, high: 95 % interval; None for a single pair. pairs: how many it is of."""

    ratio: float
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True)
class PairedCeiling:
    """Pairs in order of time. step_s: of each, s a step. s_per_flop: unit → of each, s. kernels: unit → what ran.

    rule: of the interval (`Run.interval_rule`).
    """

    step_s: tuple[float, ...]
    s_per_flop: Mapping[str, tuple[float, ...]]
    kernels: Mapping[str, str]
    rule: str = LAG1

    def utilization(self, flop_by_unit: Mapping[str, float]) -> PairedUtilization:
        """Of a step. flop_by_unit: its work. Raises Unavailable for work on a unit without a kernel, and for none."""
        work = {unit: flop for unit, flop in flop_by_unit.items() if flop}
        if not work:
            raise Unavailable("no model FLOP to divide")
        if lacking := [unit for unit in work if unit not in self.s_per_flop]:
            known = ", ".join(sorted(self.s_per_flop))
            raise Unavailable(f"no kernel of {', '.join(lacking)} was timed beside the steps; known units: {known}")
        times = zip(*(self.s_per_flop[unit] for unit in work), strict=True)
        ideal_s = [sum(flop * each for flop, each in zip(work.values(), pair, strict=True)) for pair in times]
        ideal, step = fmean(ideal_s), fmean(self.step_s)
        ratio, count = ideal / step, len(ideal_s)
        differences = [a / ideal - b / step for a, b in zip(ideal_s, self.step_s, strict=True)]
        spread = summarise(differences, signed=True, rule=self.rule)
        if spread.low is None or spread.high is None:
            return PairedUtilization(ratio, None, None, count)
        return PairedUtilization(ratio, ratio * math.exp(spread.low), ratio * math.exp(spread.high), count)

    @property
    def half_width_ratio(self) -> float | None:
        """Half of the utilization's 95 % interval on a logarithmic scale, of the unit where it is widest. None for a
        single pair. It does not depend on how much work a step has."""
        widths = []
        for unit in self.s_per_flop:
            found = self.utilization({unit: 1})
            if found.low is None or found.high is None:
                return None
            widths.append(math.log(found.high / found.low) / 2 if found.low > 0 else math.inf)
        return max(widths)

    def source(self, flop_by_unit: Mapping[str, int]) -> str:
        """The kernels that this work is divided by."""
        kernels = [f"{unit} {self.kernels[unit]}" for unit in sorted(self.kernels) if flop_by_unit.get(unit)]
        return f"{'; '.join(kernels)}, timed beside the steps, {len(self.step_s)} pairs"


def paired_ceiling(samples: Sequence[Sample], rule: str = LAG1) -> PairedCeiling | None:
    """Of one attempt's samples. None where no ceiling was timed between its blocks, or no measured block has one.

    rule: of the interval (`Run.interval_rule`).
    """
    ordered = sorted((s for s in samples if not s.work and not s.phase), key=lambda s: s.start_s)
    steps = [s for s in ordered if s.part in ("measure", *ASIDE)]
    beside: dict[str, list[Sample]] = {}
    for sample in ordered:
        if sample.part == "ceiling" and sample.flop:
            beside.setdefault(sample.unit, []).append(sample)
    pairs = [pair for pair in zip(steps, *beside.values(), strict=False) if pair[0].part == "measure"]
    if not beside or not pairs:
        return None
    calm = [pair for pair in pairs if not any(map(is_disturbed, pair))]
    blocks, *kernels = zip(*(calm if len(calm) >= LEAST_PAIRS else pairs), strict=True)
    rates = [_s_per_flop(each) for each in kernels]
    names = {unit: each[0].kernel for unit, each in beside.items()}
    return PairedCeiling(tuple(block_means_s(blocks)), dict(zip(beside, rates, strict=True)), names, rule)


def _s_per_flop(blocks: Sequence[Sample]) -> tuple[float, ...]:
    calls_s = zip(block_means_s(blocks), blocks, strict=True)
    return tuple(call_s * block.steps / (block.flop or math.inf) for call_s, block in calls_s)
