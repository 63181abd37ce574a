"""How long a step takes, and each of its phases: one summary of a cell's timed blocks for each.

Device time where every block has it, else wall time: one clock for all blocks, never a mixture. Phases were timed in a
pass of their own, whose marks cost a little: their sum is near the whole step's time, not equal to it. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from analysis.stats import LAG1, Summary, summarise
from results.records import PHASES, Run, Sample, StepTime, identity

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
    return "device" if all(block.device_s is not None for block in blocks) else "wall"


def block_means_s(blocks: Sequence[Sample]) -> list[float]:
    """Seconds a step of each block, all by one clock."""
    if block_clock(blocks) == "device":
        return [block.device_s / block.steps for block in blocks if block.device_s is not None]
    return [block.wall_s / block.steps for block in blocks]


def block_summary(blocks: Sequence[Sample], rule: str = LAG1) -> Summary:
    """Seconds a step over the blocks, each weighted by its steps. rule: of the interval, as the cell's row names it
    (`Run.interval_rule`). Raises ValueError without blocks."""
    return summary_of(block_means_s(blocks), [block.steps for block in blocks], rule)


def summary_of(means_s: Sequence[float], steps: Sequence[int], rule: str = LAG1) -> Summary:
    """The same of `block_means_s` and the steps of each block."""
    return _summary(tuple(means_s), tuple(steps), rule)


@functools.lru_cache(maxsize=16)
def _summary(means_s: tuple[float, ...], steps: tuple[int, ...], rule: str) -> Summary:
    """Kept, since a cell's utilization and its step times ask for the same blocks, one after the other."""
    return summarise(means_s, steps, rule=rule)


def round_trip_s(blocks: Sequence[Sample]) -> float | None:
    """How far two processors were apart in these blocks: the median of their times of a cache line, where there are
    any."""
    trips_s = [block.core_round_trip_s for block in blocks if block.core_round_trip_s]
    return median(trips_s) if trips_s else None


def whole_steps(samples: Sequence[Sample]) -> list[Sample]:
    """The measured blocks of the cell's own whole steps, without those of warm-up, phases and other works."""
    return [s for s in samples if s.part == "measure" and not s.phase and not s.work and s.steps > 0]


def step_times(run: Run, samples: Sequence[Sample]) -> list[StepTime]:
    """The rows of one cell: the whole step first, then its phases in their order. Empty for a cell without blocks.

    samples: of this attempt alone.
    """
    rows = []
    if blocks := whole_steps(samples):
        rows.append(_with_others(_row(run, "", blocks, None), blocks, samples))
    split = [s for s in samples if s.part == "phase" and not s.work and s.steps > 0]
    timed = {phase: [s for s in split if s.phase == phase] for phase in PHASES}
    timed = {phase: blocks for phase, blocks in timed.items() if blocks}
    total_s = sum(block_summary(blocks).mean for blocks in timed.values())
    return rows + [_row(run, phase, blocks, total_s) for phase, blocks in timed.items()]


def _with_others(row: StepTime, blocks: Sequence[Sample], samples: Sequence[Sample]) -> StepTime:
    """The row with the numbers of disturbed and of moved blocks of whole steps, and the mean that they would give with
    the others; and how far the processors were apart in those that are used."""
    row = replace(row, core_round_trip_s=round_trip_s(blocks))
    others = [s for s in samples if s.part in ASIDE and not s.phase and not s.work and s.steps > 0]
    if not others:
        return row
    disturbed, moved = (sum(s.part == part for s in others) for part in ASIDE)
    all_s = block_summary([*blocks, *others]).mean
    return replace(row, disturbed_blocks=disturbed, moved_blocks=moved, all_mean_s=all_s)


def _row(run: Run, phase: str, blocks: Sequence[Sample], total_s: float | None) -> StepTime:
    steps = [block.steps for block in blocks]
    summary = summary_of(block_means_s(blocks), steps, run.interval_rule)
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
        steps=sum(steps),
        drift_ratio=summary.drift_ratio,
        outliers=summary.outliers,
        share_ratio=summary.mean / total_s if total_s else None,
    )
