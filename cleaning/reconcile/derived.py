"""Defines `Built`, the rows derived from a run, and `View`, one cell of the run with the utilization to show first.

A cell is one combination of workload, batch size and precision. `cleaning/reconcile/run.py` makes a `Built` with one
`View` per cell from raw rows; reports, figures and pages read them. `with_small_batches` takes views and returns them
with `small_batch` set. No file is read or written here.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.utilization.numerators import TableCount
from cleaning.reconcile.variants import Variant
from results.records.answers import ParallelStep, StepTime, Utilization, WorkTime
from results.records.cell import MEASURED, Run, SessionRow
from results.records.counts import (
    Agreement,
    BatchLaw,
    CleanedOperation,
    CleaningLog,
    FlopCount,
    ProfileCount,
    Ratio,
)
from results.records.rows import replace_fields
from results.store.layout import key_of

HEADLINES = ("datasheet", "user", "paired_ceiling", "ceiling")
"""Denominators of the utilization shown first, in order of preference."""

METHODS = ("exact", "batch", "epoch", "theory", "one")
"""Numerators of the utilization shown first, in order of preference."""

RECORDED_METHODS = frozenset(("one", "batch", "epoch"))
"""Methods of the 2021 post that a profiler records. Its arithmetic is shown where one of them was requested."""


@dataclass(frozen=True)
class View:
    """One cell: its raw row (`run`), its rows of utilization.csv (`fractions`), and the counts of its operation table
    (None: no table).

    memory_bytes_per_s: rate of the device's memory, measured in the session or from the datasheet; None: unknown.
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
        """The id of the cell that this one repeats: its own id without the repeat number."""
        return replace_fields(self.run.cell, {"repeat": 0}).cell_id

    @functools.cached_property
    def partial(self) -> bool:
        """Whether the exact count lacks calls that no rule counts."""
        return any(row.unknown_calls and row.method == "exact" for row in self.fractions)

    @functools.cached_property
    def headline(self) -> Utilization | None:
        """The fraction shown first: the best numerator over the first known denominator; None without a ratio.

        Where the exact count lacks calls, a counter's forward pass is not a substitute: that it names none of them does
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
        return self._divided.get((method, denominator))

    @functools.cached_property
    def _divided(self) -> Mapping[tuple[str, str], Utilization]:
        """(method, denominator) → the first row that has a ratio."""
        rows = [row for row in self.fractions if row.utilization_ratio is not None]
        return {(row.method, row.denominator): row for row in reversed(rows)}


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
