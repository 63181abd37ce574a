"""How long a step takes, and each of its phases: one summary of a cell's timed blocks for each.

Device time where every block has it, else wall time: one clock for all blocks, never a mixture. Phases were timed in a
pass of their own, whose marks cost a little: their sum is near the whole step's time, not equal to it. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis.stats.summary import LAG1, Summary, summarise
from results.records.answers import StepTime
from results.records.cell import Run, identity
from results.records.rows import changed
from results.records.samples import Sample
from results.records.vocabulary import PHASES

DISTURBED_RATIO = 0.05
"""Wait for a processor ÷ a block's time from which the block is disturbed."""


ASIDE = ("disturbed", "moved")
"""Parts of measured blocks that waited for a processor, or were timed while the processors were placed otherwise than
for the others (`analysis/utilization/placement.py`): in no number but `all_mean_s`."""


def waited(block: Sample) -> bool:
    """Whether a block waited for a processor so long that it is disturbed. False where the system does not count it."""
    return (block.run_wait_s or 0.0) >= DISTURBED_RATIO * block.wall_s


def is_disturbed(block: Sample) -> bool:
    """Whether such a wait is in the block's time: it is not where the time is that of the device."""
    return block.device_s is None and waited(block)


def block_clock(blocks: Sequence[Sample]) -> str:
    """The clock that the blocks' times are taken from: "device" or "wall"."""
    return "wall" if any(block.device_s is None for block in blocks) else "device"


def block_means_s(blocks: Sequence[Sample]) -> list[float]:
    """Seconds a step of each block, all by one clock."""
    clock = f"{block_clock(blocks)}_s"
    return [getattr(block, clock) / block.steps for block in blocks]


def block_summary(blocks: Sequence[Sample], rule: str = LAG1) -> Summary:
    """Seconds a step over the blocks, each weighted by its steps. rule: of the interval, as the cell's row names it
    (`Run.interval_rule`). Raises ValueError without blocks."""
    return summarise(block_means_s(blocks), [block.steps for block in blocks], rule=rule)


@dataclass(frozen=True)
class StepBlocks:
    """Blocks of steps, of one or more: seconds a step of each by one clock, the steps of each, and their summary."""

    blocks: Sequence[Sample]
    means_s: Sequence[float]
    steps: Sequence[int]
    summary: Summary


def step_blocks(blocks: Sequence[Sample], rule: str = LAG1) -> StepBlocks | None:
    """Of these blocks; None without any. rule: of the interval (`Run.interval_rule`)."""
    if not blocks:
        return None
    means_s, steps = block_means_s(blocks), [block.steps for block in blocks]
    return StepBlocks(blocks, means_s, steps, summarise(means_s, steps, rule=rule))


def median_round_trip_s(blocks: Sequence[Sample]) -> float | None:
    """How far two processors were apart in these blocks: the median of their times of a cache line, where there are
    any."""
    trips_s = [block.core_round_trip_s for block in blocks if block.core_round_trip_s]
    return median(trips_s) if trips_s else None


def whole_steps(samples: Sequence[Sample]) -> list[Sample]:
    """The measured blocks of the cell's own whole steps, without those of warm-up, phases and other works."""
    return _own_blocks(samples, "measure", "")


def _own_blocks(samples: Sequence[Sample], part: str, phase: str) -> list[Sample]:
    """The blocks of the cell's own steps that are of a part and a phase."""
    return [s for s in samples if s.part == part and s.phase == phase and not s.work and s.steps > 0]


def step_times(run: Run, samples: Sequence[Sample], whole: StepBlocks | None = None) -> list[StepTime]:
    """The rows of one cell: the whole step first, then its phases in their order. Empty for a cell without blocks.

    samples: of this attempt alone. whole: `step_blocks` of its whole steps, where that is known.
    """
    rows = []
    if whole := whole or step_blocks(whole_steps(samples), run.interval_rule):
        rows.append(_with_others(_row(run, "", whole, None), whole.blocks, samples))
    marked = [sample for sample in samples if sample.part == "phase"]
    of_phases = {phase: step_blocks(_own_blocks(marked, "phase", phase), run.interval_rule) for phase in PHASES}
    timed = {phase: blocks for phase, blocks in of_phases.items() if blocks is not None}
    total_s = sum(blocks.summary.mean for blocks in timed.values())
    return rows + [_row(run, phase, blocks, total_s) for phase, blocks in timed.items()]


def _with_others(row: StepTime, blocks: Sequence[Sample], samples: Sequence[Sample]) -> StepTime:
    """The row with the numbers of disturbed and of moved blocks of whole steps, and the mean that they would give with
    the others; and how far the processors were apart in those that are used."""
    row = changed(row, {"core_round_trip_s": median_round_trip_s(blocks)})
    disturbed, moved = (_own_blocks(samples, part, "") for part in ASIDE)
    if not disturbed and not moved:
        return row
    all_s = block_summary([*blocks, *disturbed, *moved]).mean
    return changed(row, {"disturbed_blocks": len(disturbed), "moved_blocks": len(moved), "all_mean_s": all_s})


def _row(run: Run, phase: str, timed: StepBlocks, total_s: float | None) -> StepTime:
    summary = timed.summary
    return StepTime(
        **identity(run, StepTime),
        phase=phase,
        clock=block_clock(timed.blocks),
        mean_s=summary.mean,
        median_s=summary.median,
        p5_s=summary.p5,
        p95_s=summary.p95,
        low_s=summary.low,
        high_s=summary.high,
        blocks=summary.n,
        effective_blocks=summary.effective_n,
        steps=sum(timed.steps),
        drift_ratio=summary.drift_ratio,
        outliers=summary.outliers,
        share_ratio=summary.mean / total_s if total_s else None,
    )
