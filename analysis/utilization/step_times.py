"""Computes step times, phase times and paired ceilings from a cell's timed blocks, and decides which blocks count.

`step_times` takes a `Run` and its `Sample`s and returns `StepTime` rows. `paired_ceiling` takes the samples and returns
the rates of kernels that were timed between the blocks. All blocks use one clock: device time where every block has it,
else wall time. Phases were timed in a separate pass. A virtual machine's processors move between near and far cores;
blocks of the rarer placement are set aside. Over a paired ceiling, the interval is that of the mean of z = ideal time ÷
its mean - step time ÷ its mean. This z is the linearised logarithm of the ratio of means (Cochran, "Sampling
Techniques", 3rd edition, section 6.3). Not claimed: more than two placements, or that another process slows a kernel as
it does a step.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from analysis.stats.summary import LAG1, Summary, summarise
from results.errors import Unavailable
from results.records.answers import StepTime
from results.records.cell import Run, Sample, identity
from results.records.counts import PHASES
from results.records.rows import replace_fields

DISTURBED_RATIO = 0.05
"""Wait for a processor ÷ a block's time from which the block counts as disturbed."""


ASIDE = ("disturbed", "moved")
"""Values of `Sample.part` for blocks that waited for a processor, or ran in another placement of processors than the
others. Only `all_mean_s` includes these blocks."""


def waited(block: Sample) -> bool:
    """Return whether a block waited long enough for a processor to be disturbed. False where the system does not count
    it."""
    return (block.run_wait_s or 0.0) >= DISTURBED_RATIO * block.wall_s


def is_disturbed(block: Sample) -> bool:
    """Return whether a block's time includes a long wait for a processor (`waited`); a device's time never does."""
    return block.device_s is None and waited(block)


def block_clock(blocks: Sequence[Sample]) -> str:
    """Return the clock of the blocks' times: "device" or "wall"."""
    return "wall" if any(block.device_s is None for block in blocks) else "device"


def block_means_s(blocks: Sequence[Sample]) -> list[float]:
    """Return seconds per step of each block, all by one clock."""
    clock = f"{block_clock(blocks)}_s"
    return [getattr(block, clock) / block.steps for block in blocks]


def block_summary(blocks: Sequence[Sample], rule: str = LAG1) -> Summary:
    """Summarise seconds per step over the blocks, weighted by their steps. rule: of the interval, as the cell's row
    names it (`Run.interval_rule`). Raises ValueError without blocks."""
    return summarise(block_means_s(blocks), [block.steps for block in blocks], rule=rule)


def median_round_trip_s(blocks: Sequence[Sample]) -> float | None:
    """Return the median time of a cache line between two processors in these blocks; None where it was not timed."""
    trips_s = [block.core_round_trip_s for block in blocks if block.core_round_trip_s]
    return median(trips_s) if trips_s else None


def whole_steps(samples: Sequence[Sample]) -> list[Sample]:
    """Select the measured blocks of the cell's own whole steps, without warm-up, phases and other passes."""
    return _own_blocks(samples).get(("measure", ""), [])


def _own_blocks(samples: Sequence[Sample]) -> dict[tuple[str, str], list[Sample]]:
    """Return (part, phase) → the blocks of the cell's own steps."""
    blocks: dict[tuple[str, str], list[Sample]] = {}
    for block in samples:
        if not block.work and block.steps > 0:
            blocks.setdefault((block.part, block.phase), []).append(block)
    return blocks


def step_times(run: Run, samples: Sequence[Sample], summary: Summary | None = None) -> list[StepTime]:
    """Return the rows of one cell: the whole step, then its phases in order. Empty for a cell without blocks.

    samples: of this attempt only. summary: `block_summary` of its whole steps, where known.
    """
    rule, rows, own = run.interval_rule, [], _own_blocks(samples)
    if whole := own.get(("measure", "")):
        row = _row(run, "", whole, summary or block_summary(whole, rule), None)
        others: dict[str, float | None] = {"core_round_trip_s": median_round_trip_s(whole)}
        disturbed, moved = (own.get((part, ""), []) for part in ASIDE)
        if disturbed or moved:
            all_s = block_summary([*whole, *disturbed, *moved]).mean
            others |= {"disturbed_blocks": len(disturbed), "moved_blocks": len(moved), "all_mean_s": all_s}
        rows.append(replace_fields(row, others))
    blocks = {phase: own["phase", phase] for phase in PHASES if ("phase", phase) in own}
    timed = {phase: block_summary(own, rule) for phase, own in blocks.items()}
    total_s = sum(summary.mean for summary in timed.values())
    return rows + [_row(run, phase, blocks[phase], summary, total_s) for phase, summary in timed.items()]


def _row(run: Run, phase: str, blocks: Sequence[Sample], summary: Summary, total_s: float | None) -> StepTime:
    return StepTime(
        **identity(run, StepTime),
        phase=phase,
        clock=block_clock(blocks),
        mean_s=summary.mean,
        median_s=summary.median,
        p5_s=summary.p5,
        p95_s=summary.p95,
        low_s=summary.low,
        high_s=summary.high,
        blocks=summary.n,
        effective_blocks=summary.effective_n,
        steps=sum(block.steps for block in blocks),
        drift_ratio=summary.drift_ratio,
        outliers=summary.outliers,
        share_ratio=summary.mean / total_s if total_s else None,
    )


APART_RATIO = 2.0
"""Two neighbouring times of a cache line whose ratio is less are of one placement. Measured here: 84 to 117 ns between
cores of one cache, on a busy machine, and 322 to 444 ns between others (docs/benchmarks.md); sometimes 49 ns between
two hardware threads of one core, which may count as a separate placement."""


def same_placement(first_s: float | None, second_s: float | None) -> bool:
    """Return whether two times of a cache line are of one placement of the processors: True where both are None (not
    timed), False where one is."""
    if first_s is None or second_s is None:
        return first_s == second_s
    return max(first_s, second_s) < APART_RATIO * min(first_s, second_s)


def placements(blocks: Sequence[Sample]) -> list[int | None]:
    """Return the placement of each block, in order of time: 0 near, 1 far; None: moved within it, or unknown. All are 0
    where there is one placement."""
    trips_s = [block.core_round_trip_s for block in blocks]
    gaps = [(after / before, after) for before, after in itertools.pairwise(sorted(filter(None, trips_s)))]
    ratio, far_s = max(gaps, default=(1.0, math.inf))  # the far placement begins above the widest gap
    if ratio < APART_RATIO:
        return [0] * len(blocks)
    after_block = [int(trip_s >= far_s) if trip_s else None for trip_s in trips_s]
    return [now if now == before else None for before, now in itertools.pairwise([after_block[0], *after_block])]


def in_one_placement(blocks: Sequence[Sample]) -> list[Sample]:
    """Select the undisturbed blocks of the placement that has most of them; of the near one where both have as many."""
    calm = [
        (block, placement)
        for block, placement in zip(blocks, placements(blocks), strict=True)
        if not is_disturbed(block)
    ]
    most = max((0, 1), key=[placement for _, placement in calm].count)
    return [block for block, placement in calm if placement == most]


LEAST_PAIRS = 3
"""Number of undisturbed pairs from which the disturbed ones are left out."""


@dataclass(frozen=True)
class PairedUtilization:
    """A utilization from pairs of blocks. low, high: 95 % interval; None for a single pair. pairs: number of pairs."""

    ratio: float
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True)
class PairedCeiling:
    """Pairs of a block of steps and blocks of kernels, in order of time. step_s: seconds per step of each pair.
    s_per_flop: unit → seconds per FLOP of each pair. kernels: unit → name of the kernel.

    rule: of the interval (`Run.interval_rule`).
    """

    step_s: tuple[float, ...]
    s_per_flop: Mapping[str, tuple[float, ...]]
    kernels: Mapping[str, str]
    rule: str = LAG1

    def utilization(self, flop_by_unit: Mapping[str, float]) -> PairedUtilization:
        """Return the utilization of a step. flop_by_unit: its model FLOP. Raises Unavailable for a unit without a
        kernel."""
        flop_of = {unit: flop for unit, flop in flop_by_unit.items() if flop}
        if not flop_of:
            raise Unavailable("no model FLOP to divide")
        if lacking := [unit for unit in flop_of if unit not in self.s_per_flop]:
            known = ", ".join(sorted(self.s_per_flop))
            raise Unavailable(f"no kernel of {', '.join(lacking)} was timed beside the steps; known units: {known}")
        ideal_s = np.zeros(len(self.step_s))
        for unit, flop in flop_of.items():
            ideal_s += flop * np.array(self.s_per_flop[unit])
        ideal, step, count = fmean(ideal_s.tolist()), fmean(self.step_s), len(self.step_s)
        ratio, differences = ideal / step, ideal_s / ideal - np.array(self.step_s) / step
        spread = summarise(differences, signed=True, rule=self.rule)
        if spread.low is None or spread.high is None:
            return PairedUtilization(ratio, None, None, count)
        return PairedUtilization(ratio, ratio * math.exp(spread.low), ratio * math.exp(spread.high), count)

    @property
    def half_width_ratio(self) -> float | None:
        """Return half of the utilization's 95 % interval on a logarithmic scale, of the unit where it is widest,
        whatever the step's FLOP. None for a single pair."""
        widths = []
        for unit in self.s_per_flop:
            paired = self.utilization({unit: 1})
            if paired.low is None or paired.high is None:
                return None
            widths.append(math.log(paired.high / paired.low) / 2 if paired.low > 0 else math.inf)
        return max(widths)

    def source(self, flop_by_unit: Mapping[str, int]) -> str:
        """Return the kernels that these units are divided by."""
        kernels = [f"{unit} {self.kernels[unit]}" for unit in sorted(self.kernels) if flop_by_unit.get(unit)]
        return f"{'; '.join(kernels)}, timed beside the steps, {len(self.step_s)} pairs"


def paired_ceiling(samples: Sequence[Sample], rule: str = LAG1) -> PairedCeiling | None:
    """Return the ceiling timed between the blocks of one attempt. None where no measured block has one.

    rule: of the interval (`Run.interval_rule`).
    """
    ordered = sorted((s for s in samples if not s.work and not s.phase), key=lambda s: s.start_s)
    steps = [s for s in ordered if s.part in ("measure", *ASIDE)]
    ceiling_blocks: dict[str, list[Sample]] = {}
    for sample in ordered:
        if sample.part == "ceiling" and sample.flop:
            ceiling_blocks.setdefault(sample.unit, []).append(sample)
    pairs = [pair for pair in zip(steps, *ceiling_blocks.values(), strict=False) if pair[0].part == "measure"]
    if not ceiling_blocks or not pairs:
        return None
    calm = [pair for pair in pairs if not any(map(is_disturbed, pair))]
    blocks, *kernels = zip(*(calm if len(calm) >= LEAST_PAIRS else pairs), strict=True)
    s_per_flop = {}
    for unit, own in zip(ceiling_blocks, kernels, strict=True):
        calls_s = zip(block_means_s(own), own, strict=True)
        s_per_flop[unit] = tuple(call_s * block.steps / (block.flop or math.inf) for call_s, block in calls_s)
    names = {unit: own[0].kernel for unit, own in ceiling_blocks.items()}
    return PairedCeiling(tuple(block_means_s(blocks)), s_per_flop, names, rule)
