"""What a person is shown of cells that several ranks trained: how a step is divided, who is late, how it scales.

A step's collectives have a row for each rank and kind, relative to the rate at which their link was measured.
"""

from collections.abc import Sequence

from cleaning.reconcile.view import View
from reports.shared.layout import Column, Part, TextTable, strong
from reports.shared.numbers import DASH, digits, percent
from results.records.answers import ParallelStep
from results.store.layout import key_of

HEADING = "On several ranks: shares of a recorded step, and each rank's items/s against the fewest ranks'."


def parallel_parts(steps: Sequence[ParallelStep], views: Sequence[View]) -> list[Part]:
    """The table of such cells and a line for each late rank; nothing for a run without any. views: in their order."""
    rows = {key_of(step): step for step in steps}
    shown = [rows[key_of(view.run)] for view in views if key_of(view.run) in rows and view.measured]
    if not shown:
        return []
    lines = [line for step in shown for line in (pipeline_line(step), late_line(step)) if line]
    return [strong(HEADING), "", _table(shown), "", *lines]


def _table(steps: Sequence[ParallelStep]) -> TextTable:
    columns = (
        Column("model", right=False, wraps=True, least=14),
        Column("batch", right=True),
        Column("plan", right=False),
        Column("step ms", right=True),
        Column("computes", right=True, rank=2),
        Column("exposed", right=True),
        Column("hidden", right=True),
        Column("imbalance", right=True, rank=3),
        Column("strong", right=True, rank=1),
        Column("weak", right=True, rank=1),
    )
    return TextTable(columns, [_cells(step) for step in steps])


def _cells(step: ParallelStep) -> list[str]:
    shares = (step.compute_ratio, step.exposed_ratio, step.overlapped_ratio, step.imbalance_ratio)
    return [
        step.model,
        str(step.batch_size),
        step.parallel,
        DASH if step.time_s is None else digits(step.time_s * 1e3),
        *(DASH if share is None else percent(share) for share in shares),
        _scaling(step.strong_ratio, step.strong_low_ratio, step.strong_high_ratio),
        _scaling(step.weak_ratio, step.weak_low_ratio, step.weak_high_ratio),
    ]


def _scaling(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None:
        return DASH
    return percent(ratio) if low is None or high is None else f"{percent(ratio)} ({percent(low)} to {percent(high)})"


def pipeline_line(step: ParallelStep) -> str:
    """What a pipeline's stages wait by their schedule, and what they compute; "" for a step without a pipeline."""
    if step.bubble_ratio is None:
        return ""
    name = f"{step.model} b{step.batch_size} {step.parallel}"
    seen = (
        ""
        if step.compute_ratio is None
        else f"; {percent(1 - step.compute_ratio)} of a recorded step passed without computing"
    )
    return f"{name}: the schedule leaves a stage {percent(step.bubble_ratio)} of a step without work{seen}"


def late_line(step: ParallelStep) -> str:
    """Who is waited for, how long, and since when; "" where nobody is worth a name."""
    if step.late_rank is None or step.late_ratio is None:
        return ""
    since = "" if step.late_since_step is None else f", in each recorded step from {step.late_since_step} on"
    if step.late_since_block is not None:
        since += f", and in the timed blocks from {step.late_since_block} of samples.csv on"
    whom = f"rank {step.late_rank} ({step.late_name})"
    name = f"{step.model} b{step.batch_size} {step.parallel}"
    return f"{name}: the others wait for {whom} {percent(step.late_ratio)} of a step{since}"
