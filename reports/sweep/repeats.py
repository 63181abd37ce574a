"""Combines the repeats of a cell, and writes tables of the variants of a step and of cells on several ranks.

`repeats_of` takes `View`s (cells with their rows of utilization.csv) and returns `Repeats`. `variant_parts` takes
`Variant`s, `parallel_parts` takes `ParallelStep`s and views; both return tables. Repeats are shown by the geometric
mean of their utilizations, with a 95 % interval by Student's t on the logarithms. The interval of a single cell covers
one process in one window of time. Repeats run in fresh processes, minutes apart, and also show how processes and
windows differ. Two repeats only give a wide interval (t is 12.7 at one degree of freedom). The scatter of repeats is
therefore pooled over all repeated cells (`analysis/utilization/windows.py`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any

from analysis.utilization import windows
from cleaning.reconcile.derived import View
from cleaning.reconcile.variants import Variant
from reports.shared.layout import Part, TableColumn, TextTable, strong
from reports.shared.numbers import DASH, OF_WHAT, cell_name, digits, percent, source_name
from results.records.answers import ParallelStep, Utilization
from results.records.cell import MEASURED
from results.records.rows import replace_fields
from results.store.layout import key_of

ENOUGH = 3
"""Advised number of repeats per cell, in a run of two or more cells."""


@dataclass(frozen=True)
class Repeats:
    """Two or more cells that differ only in the repeat, each with a utilization.

    ratio, low, high: the geometric mean of their utilizations and its 95 % interval.
    """

    views: tuple[View, ...]
    ratio: float
    low: float
    high: float


def repeats_of(views: Iterable[View], of_run: Iterable[View]) -> list[Repeats]:
    """Return the repeats of each cell, in order of first appearance.

    Repeats share numerator, device and the kind of peak (a measured ceiling: the same one). of_run: all cells of the
    run, from which the scatter is pooled.
    """
    pooled, groups = _pools(of_run), dict[tuple[windows.Pool, tuple[object, ...]], list[tuple[View, float]]]()
    for view in views:
        row = view.headline
        if row is not None and row.utilization_ratio:
            groups.setdefault((windows.pool_of(row), windows.cell_of(row)), []).append((view, row.utilization_ratio))
    repeats = []
    for (pool, _), group in groups.items():
        same, ratios = zip(*group, strict=True)
        if len({view.run.repeat for view in same}) > 1:
            repeats.append(Repeats(same, *windows.mean_of_repeats(ratios, pooled.get(pool))))
    return repeats


def repeats_by_cell(views: Iterable[View], of_run: Iterable[View]) -> dict[tuple[str, int], Repeats]:
    """Return attempt of a repeated cell → all of its repeats. of_run: all cells of the run."""
    return {key_of(view.run): repeats for repeats in repeats_of(views, of_run) for view in repeats.views}


def one_a_cell(views: Iterable[View], of_run: Iterable[View]) -> list[View]:
    """Return one view a cell, in order of first appearance: the mean of its repeats, or the first of them if none has a
    ratio. Repeats over different peaks stay separate. of_run: as in `repeats_of`."""
    repeats, cells = repeats_by_cell(views, of_run), dict[str, list[View]]()
    for view in views:
        cells.setdefault(view.repeated_cell, []).append(view)
    shown = (view for same in cells.values() for view in [v for v in same if v.headline] or same[:1])
    pooled = ((view, repeats.get(key_of(view.run))) for view in shown)
    return [
        view if group is None else _pooled(group) for view, group in pooled if group is None or view is group.views[0]
    ]


def _pooled(repeats: Repeats) -> View:
    """Return the first repeat's view with the geometric means of all repeats in each fraction, and their interval."""
    first, rows_of = repeats.views[0], dict[tuple[str, ...], list[Utilization]]()
    for row in (row for view in repeats.views for row in view.fractions):
        rows_of.setdefault((row.method, row.numerator_source, row.denominator), []).append(row)
    fractions = []
    for row in first.fractions:
        same = rows_of[row.method, row.numerator_source, row.denominator]
        means: dict[str, Any] = {"warnings": tuple(dict.fromkeys(mark for repeat in same for mark in repeat.warnings))}
        for name in _MEANS:
            values = [value for repeat in same if (value := getattr(repeat, name)) is not None]
            means[name] = geometric_mean(values) if values else None
        means["peak_source"] = "; ".join(dict.fromkeys(source_name(repeat.peak_source) for repeat in same))
        if row is first.headline:
            ends = {"low_ratio": repeats.low, "high_ratio": repeats.high}
            means |= {f"{kind}_{end}": value for kind in ("utilization", "windows") for end, value in ends.items()}
        fractions.append(replace_fields(row, means))
    status = max((view.run.status for view in repeats.views), key=MEASURED.index)
    return replace(first, run=replace_fields(first.run, {"repeat": 0, "status": status}), fractions=tuple(fractions))


_MEANS = ("time_s", "achieved_flop_per_s", "peak_flop_per_s", "utilization_ratio", "items_per_s")
"""Columns of a fraction whose geometric mean over repeats is shown."""


def repeat_lines(views: Sequence[View]) -> list[str]:
    """Return what the table's intervals cover: any window of the run, with the scatter of repeats, or one window of
    each cell."""
    pooled = _pools(views)
    known = {pool: between for pool, between in pooled.items() if between is not None}
    if not known:
        rows = [view.headline for view in views if view.headline is not None]
        cells = len({view.run.cell_id for view in views if view.headline is not None and not view.run.repeat})
        advised = max(ENOUGH, 1 + math.ceil(windows.LEAST_DEGREES / max(1, cells)))
        line = f"± covers one window of each cell; with --repeat {advised} it covers the variation between windows"
        return [line] if any(row.utilization_low_ratio is not None for row in rows) else []
    return [
        f"± covers any window of this run: it has the variation between repeats, {percent(between.deviation)} "
        f"(standard deviation, {between.cells} cells of {OF_WHAT[pool.denominator]} on {pool.device}); "
        "each cell's own window is in utilization.csv"
        for pool, between in known.items()
    ]


def _pools(views: Iterable[View]) -> Mapping[windows.Pool, windows.BetweenWindows | None]:
    return windows.pools(view.headline for view in views if view.headline is not None)


def name_of(repeats: Repeats, shared: str = "") -> str:
    """Name a repeated cell, with its number of repeats. shared: parts of the variant that all cells of the run have."""
    view = repeats.views[0]
    return f"{cell_name(View(replace_fields(view.run, {'repeat': 0}), view.fractions), shared)} × {len(repeats.views)}"


HEADING = "Variants: steps per second ÷ those of the first variant of the same model and batch, with the 95 % interval."

MOST_ROWS = 40
"""Maximum number of rows of the table in a terminal; the page has all."""

NAMES = ("model", "batch", "variant", "speed", "95 % interval")
TEXT_COLUMNS = ("model", "variant")


def variant_parts(variants: Sequence[Variant]) -> list[Part]:
    """Return the table for a terminal; nothing for a run without variants."""
    if not variants:
        return []
    hidden = len(variants) - MOST_ROWS
    note = [f"{hidden} more in report.html"] if hidden > 0 else []
    return [strong(HEADING), "", variant_table(variants[:MOST_ROWS]), *note, ""]


def variant_table(variants: Sequence[Variant]) -> TextTable:
    """Return a row for each variant."""
    rows = []
    for row in variants:
        low, high = row.low_ratio, row.high_ratio
        interval = DASH if low is None or high is None else f"{digits(low)} to {digits(high)}"
        speed = "first" if row.first else digits(row.ratio)
        rows.append([row.model, str(row.batch_size), row.name, speed, interval])
    return TextTable(
        [TableColumn(name, right=name not in TEXT_COLUMNS, wraps=name in TEXT_COLUMNS, least=14) for name in NAMES],
        rows,
    )


RANKS_HEADING = "On several ranks: shares of a recorded step, and each rank's items/s against the fewest ranks'."


def parallel_parts(steps: Sequence[ParallelStep], views: Sequence[View]) -> list[Part]:
    """Return the table of cells on several ranks, in the order of `views`, and lines on pipelines and late ranks; []
    for a run without such cells."""
    rows = {key_of(step): step for step in steps}
    shown = [rows[key_of(view.run)] for view in views if key_of(view.run) in rows and view.measured]
    if not shown:
        return []
    lines = [line for step in shown for line in (pipeline_line(step), late_line(step)) if line]
    columns = (
        TableColumn("model", right=False, wraps=True, least=14),
        TableColumn("batch", right=True),
        TableColumn("plan", right=False),
        TableColumn("step ms", right=True),
        TableColumn("computes", right=True, rank=2),
        TableColumn("exposed", right=True),
        TableColumn("hidden", right=True),
        TableColumn("imbalance", right=True, rank=3),
        TableColumn("strong", right=True, rank=1),
        TableColumn("weak", right=True, rank=1),
    )
    cells = []
    for step in shown:
        time_ms = DASH if step.time_s is None else digits(step.time_s * 1e3)
        shares = (step.compute_ratio, step.exposed_ratio, step.overlapped_ratio, step.imbalance_ratio)
        strong_text = _scaling(step.strong_ratio, step.strong_low_ratio, step.strong_high_ratio)
        weak_text = _scaling(step.weak_ratio, step.weak_low_ratio, step.weak_high_ratio)
        texts = [DASH if share is None else percent(share) for share in shares]
        cells.append([step.model, str(step.batch_size), step.parallel, time_ms, *texts, strong_text, weak_text])
    return [strong(RANKS_HEADING), "", TextTable(columns, cells), "", *lines]


def _scaling(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None:
        return DASH
    return percent(ratio) if low is None or high is None else f"{percent(ratio)} ({percent(low)} to {percent(high)})"


def pipeline_line(step: ParallelStep) -> str:
    """Return how long a pipeline's stages wait by the schedule and in a recorded step; "" without a pipeline."""
    if step.bubble_ratio is None:
        return ""
    name, recorded = f"{step.model} b{step.batch_size} {step.parallel}", ""
    if step.compute_ratio is not None:
        recorded = f"; {percent(1 - step.compute_ratio)} of a recorded step passed without computing"
    return f"{name}: the schedule leaves a stage {percent(step.bubble_ratio)} of a step without work{recorded}"


def late_line(step: ParallelStep) -> str:
    """Return which rank the others wait for, how long and since when; "" if no rank is late."""
    if step.late_rank is None or step.late_ratio is None:
        return ""
    since = "" if step.late_since_step is None else f", in each recorded step from {step.late_since_step} on"
    if step.late_since_block is not None:
        since += f", and in the timed blocks from {step.late_since_block} of samples.csv on"
    whom = f"rank {step.late_rank} ({step.late_name})"
    name = f"{step.model} b{step.batch_size} {step.parallel}"
    return f"{name}: the others wait for {whom} {percent(step.late_ratio)} of a step{since}"
