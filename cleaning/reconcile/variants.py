"""Holds what is derived from a run (`Built`), and a cell's part of it (`View`); compares variants, separates devices.

`variants` takes a run's rows and compares each variant of a step (precision, layout, compile setting, optimizer) with
the first one listed, as `analysis/stats/comparison.py` compares two cells. `split_by_device` makes repeats on several
devices separate cells, since a mean would hide whether the devices differ. Not claimed: that such a difference is the
device's and not the hour's.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.stats.comparison import MARGIN_RATIO, conditions, difference
from analysis.utilization.numerators import TableCount
from analysis.utilization.step_times import block_means_s, whole_steps
from results.records.answers import ParallelStep, StepTime, Utilization, WorkTime
from results.records.cell import MEASURED, Run, Sample, SessionRow
from results.records.counts import (
    Agreement,
    BatchLaw,
    CleanedOperation,
    CleaningLog,
    FlopCount,
    ProfileCount,
    Ratio,
)
from results.records.rows import replace_fields, to_text
from results.store.layout import Key, key_of

OPTIONS = {"precision": "precisions", "layout": "layout", "compile": "compile", "optimizer": "optimizer"}
"""Parameter of a variant → the option that lists its values, the reference first."""


@dataclass(frozen=True)
class Variant:
    """Steps per second ÷ those of the first variant of the same model and batch, with the 95 % interval.

    name: its values that differ. first: whether it is the reference.
    """

    model: str
    batch_size: int
    name: str
    first: bool
    ratio: float
    low_ratio: float | None
    high_ratio: float | None


def variants(
    runs: Iterable[Run],
    samples: Mapping[Key, Sequence[Sample]],
    sessions: Iterable[SessionRow],
    options: Mapping[str, Any],
) -> tuple[Variant, ...]:
    """Compare the variants of each step that one device ran in two variants or more. options: of the run's manifest."""
    devices = {session.session: (session.host, session.device_uuid) for session in sessions}
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], list[tuple[float, ...]]]] = {}
    steps: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run.status not in MEASURED or not (blocks := whole_steps(samples.get(key_of(run), ()))):
            continue
        means_s = tuple(block_means_s(blocks))
        if all(0 < mean_s < math.inf for mean_s in means_s):
            step = (devices.get(run.session), *conditions(run, *OPTIONS))
            values = tuple(getattr(run, name) for name in OPTIONS)
            groups.setdefault(step, {}).setdefault(values, []).append(means_s)
            steps.setdefault(step, run)
    lists = [options.get(option) for option in OPTIONS.values()]
    rows = []
    for step, group in groups.items():
        if len(group) < 2:
            continue
        run, ordered = steps[step], sorted(group, key=lambda values: _positions(values, lists))
        margin = MARGIN_RATIO["cuda" if run.device.startswith("cuda") else "cpu"]
        for values in ordered:
            first = values == ordered[0]
            against = difference(group[ordered[0]], group[values], margin)
            low, high = (None if end is None or first else 1 / end for end in reversed(against.interval()))
            parts = [
                f"{name}={to_text(values[index])}"
                for index, name in enumerate(OPTIONS)
                if len({other[index] for other in group}) > 1
            ]
            parts += [f"parallel={run.parallel}"] if run.parallel else []
            rows.append(Variant(run.model, run.batch_size, ", ".join(parts), first, 1 / against.ratio, low, high))
    return tuple(rows)


def _positions(values: tuple[Any, ...], lists: Sequence[Any]) -> list[int]:
    """Return each value's index in the requested list."""
    return [
        requested.index(value) if isinstance(requested, list) and value in requested else 0
        for value, requested in zip(values, lists, strict=True)
    ]


DEVICE = "device="
"""Prefix of a device at the end of a variant."""


def split_by_device(
    rows: Sequence[Utilization], runs: Mapping[Key, Run], sessions: Sequence[SessionRow]
) -> tuple[Utilization, ...]:
    """Return the rows in order; the variant of repeats that ran on several devices ends with the device: its host, and
    where one host has several also the first letters of the device's hash (of its name where it has none)."""
    locations = {session.session: (session.host, session.device_uuid or session.device) for session in sessions}
    if len({*locations.values()}) < 2:
        return tuple(rows)
    alike: dict[tuple[object, ...], set[tuple[str, str]]] = {}  # what repeats have in common → where they were measured
    points = []
    for row in rows:
        run = runs.get(key_of(row))
        location = None if run is None else locations.get(run.session)
        point = row.model, row.batch_size, row.precision, row.device.partition(":")[0], row.variant
        points.append((row, point, location))
        if location is not None:
            alike.setdefault(point, set()).add(location)
    separated = []
    for row, point, location in points:
        if location is not None and len(alike[point]) > 1:
            host, device = location
            is_only = sum(other == host for other, _ in alike[point]) == 1
            name = f"{DEVICE}{host if is_only else f'{host} {device[:8]}'}"
            row = replace(row, variant=f"{row.variant}, {name}" if row.variant else name)
        separated.append(row)
    return tuple(separated)


def devices_sentence(rows: Iterable[Utilization]) -> str:
    """Return a sentence about the cells without a mean, since their repeats ran on several devices; "" without any."""
    cells, devices = set(), set()
    for row in (row for row in rows if DEVICE in row.variant):
        device = row.variant.rpartition(DEVICE)[2]
        if "," not in device:
            cells.add((row.model, row.batch_size, row.precision))
            devices.add(device)
    if not cells:
        return ""
    whose = "one cell" if len(cells) == 1 else f"{len(cells)} cells"
    return (
        f"No mean is taken over devices: repeats of {whose} were measured on {', '.join(sorted(devices))}, and have a "
        "row and a point for each."
    )


HEADLINES = ("datasheet", "user", "paired_ceiling", "ceiling")
"""Denominators in order of preference for the headline."""

METHODS = ("exact", "batch", "epoch", "theory", "one")
"""Numerators in order of preference for the headline."""

RECORDED_METHODS = frozenset(("one", "batch", "epoch"))
"""Methods of the 2021 post that a profiler records. Its arithmetic is shown where one of them was requested."""


@dataclass(frozen=True)
class View:
    """One cell: its row, its fractions, and what its operation table holds (None: no table).

    memory_bytes_per_s: rate of the device's memory, measured in the session or of the datasheet; None: unknown.
    small_batch: whether a larger batch of the same model has a higher utilization, by intervals that do not overlap.
    """

    run: Run
    fractions: tuple[Utilization, ...]
    counted: TableCount | None = None
    memory_bytes_per_s: float | None = None
    small_batch: bool = False

    @property
    def measured(self) -> bool:
        return self.run.status in MEASURED

    @functools.cached_property
    def variant(self) -> str:
        """What distinguishes the cell besides model, batch size, precision and device."""
        return next((row.variant for row in self.fractions if row.variant), "")

    @functools.cached_property
    def repeated_cell(self) -> str:
        """The id of the cell that this one repeats: its own without the repeat."""
        return replace_fields(self.run.cell, {"repeat": 0}).cell_id

    @functools.cached_property
    def partial(self) -> bool:
        """Whether the exact count lacks calls that no rule counts."""
        return any(row.unknown_calls and row.method == "exact" for row in self.fractions)

    @functools.cached_property
    def headline(self) -> Utilization | None:
        """The fraction shown first: the best numerator over the first known denominator; None without a ratio.

        Where the exact count lacks calls, a counter's forward pass is no substitute: that it names none of them does
        not show that it counts them.
        """
        methods = [method for method in METHODS if not (self.partial and method == "theory")]
        fractions = (self.fraction(method, denominator) for method in methods for denominator in HEADLINES)
        return next((fraction for fraction in fractions if fraction is not None), None)

    @functools.cached_property
    def methods_denominator(self) -> str | None:
        """The denominator for comparing methods: the headline's if every method with a ratio has one over it, else the
        session's ceiling, since only whole steps have a paired one. None without a ratio."""
        if self.headline is None:
            return None
        methods: dict[str, set[str]] = {}
        for row in self.fractions:
            if row.utilization_ratio is not None:
                methods.setdefault(row.denominator, set()).add(row.method)
        own, wide = (methods.get(name, set()) for name in (self.headline.denominator, "ceiling"))
        return "ceiling" if wide > own else self.headline.denominator

    @functools.cached_property
    def timed_row(self) -> Utilization | None:
        """A row of the cell that has a time: the best numerator's, with an achieved rate where there is one."""
        timed = sorted(
            (row for row in self.fractions if row.time_s is not None),
            key=lambda row: (*METHODS, row.method).index(row.method),
        )
        return next((row for row in timed if row.achieved_flop_per_s is not None), timed[0] if timed else None)

    @functools.cached_property
    def step(self) -> Utilization | None:
        """A row whose time is that of one step of the cell, not of one sample or an epoch."""
        rows = (row for row in self.fractions if row.method not in ("one", "epoch") and row.time_s is not None)
        return next(rows, None)

    def fraction(self, method: str, denominator: str) -> Utilization | None:
        """Return the row of this method and denominator, if it has a ratio."""
        for row in self.fractions:
            if (row.method, row.denominator) == (method, denominator) and row.utilization_ratio is not None:
                return row
        return None


def with_small_batches(views: Sequence[View]) -> tuple[View, ...]:
    """Set for each cell whether a larger batch of its model has a higher utilization (`View.small_batch`)."""
    alike: dict[tuple[str, ...], list[tuple[View, Utilization]]] = {}
    for view in views:
        if (row := view.headline) is not None:
            key = (view.run.model, view.run.device, view.run.precision, view.variant, row.denominator)
            alike.setdefault(key, []).append((view, row))
    small = set()
    for group in alike.values():
        lows: dict[int, float] = {}  # batch size → the highest lower end
        for view, row in group:
            batch = view.run.batch_size
            lows[batch] = max(lows.get(batch, 0.0), row.utilization_low_ratio or 0.0)
        for view, row in group:
            high, batch = row.utilization_high_ratio or math.inf, view.run.batch_size
            if any(low > high for larger, low in lows.items() if larger > batch):
                small.add(key_of(view.run))
    return tuple(replace(view, small_batch=key_of(view.run) in small) for view in views)


@dataclass(frozen=True)
class Built:
    """Everything derived from one run directory. problems: what was wrong with its files, one line each."""

    utilization: tuple[Utilization, ...]
    step_times: tuple[StepTime, ...]
    views: tuple[View, ...]
    sessions: tuple[SessionRow, ...]
    problems: tuple[str, ...] = ()
    work_times: tuple[WorkTime, ...] = ()
    cleaned_operations: tuple[CleanedOperation, ...] = ()
    profile_counts: tuple[ProfileCount, ...] = ()
    ratios: Sequence[Ratio] = ()
    agreement: tuple[Agreement, ...] = ()
    batch_laws: tuple[BatchLaw, ...] = ()
    post2021: tuple[Utilization, ...] = ()
    parallel_steps: tuple[ParallelStep, ...] = ()
    variants: tuple[Variant, ...] = ()
    flop_counts: tuple[FlopCount, ...] = ()
    log: tuple[CleaningLog, ...] = ()
