"""By which numbers a cell is measured until it is done (`measure/timing/protocols.py`), as its rows can be asked for
them."""

import math
from collections.abc import Sequence

from analysis.utilization.step_times import block_summary, paired_ceiling
from results.records.cell import Parameters, Run, Sample

TARGET_CI_RATIO = {"cuda": 0.005, "cpu": 0.03}
"""Half width of the 95 % interval ÷ mean at which measuring stops (docs/conventions.md)."""

MIN_BLOCKS = {"cuda": 10, "cpu": 5}
"""Blocks that are measured at least; of a quick cell a fifth."""

QUICK = 5

BUSY_RATIO = 0.05
"""Share of all processors that others may take while blocks are timed."""


def kind_of(run: Parameters) -> str:
    """ "cuda" or "cpu"."""
    return "cuda" if run.device.startswith("cuda") else "cpu"


def target_of(run: Parameters) -> float:
    """The half width ÷ mean that was asked for."""
    return TARGET_CI_RATIO[kind_of(run)] if run.target_ci_ratio is None else run.target_ci_ratio


def narrowness(run: Run, blocks: Sequence[Sample], samples: Sequence[Sample] = ()) -> tuple[bool, str]:
    """Whether the interval is as narrow as was asked for, from enough blocks; and that in words.

    samples: all of this attempt. Where a ceiling was timed beside the blocks, it is the interval of the ratio, else
    that of the blocks.
    """
    paired = paired_ceiling(samples, run.interval_rule) if run.paired_ceiling and samples else None
    width = block_summary(blocks, run.interval_rule).half_width_ratio if paired is None else paired.half_width_ratio
    target, fewest = target_of(run), max(2, math.ceil(MIN_BLOCKS[kind_of(run)] / (QUICK if run.quick else 1)))
    shown = "no interval" if width is None else f"±{100 * width:.2g} %"
    of_what = "" if paired is None else " of the paired utilization"
    words = f"{shown}{of_what} from {len(blocks)} blocks, asked for ±{100 * target:.2g} % from {fewest}"
    return width is not None and width <= target and len(blocks) >= fewest, words
