"""What is derived of a run: everything of it (`Built`), and what is shown of one cell (`View`).

Values only: `cleaning/reconcile/run.py` derives them, and which of several sources is right is not claimed.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.utilization.numerators import TableCount
from cleaning.counts.pipeline import Cleaned
from cleaning.reconcile.variants import Variant
from results.records.answers import ParallelStep, StepTime, Utilization, WorkTime
from results.records.cell import Run, Sitting
from results.records.counts import Agreement, BatchLaw, CleanedOperation, ProfileCount, Ratio
from results.records.rows import MEASURED

HEADLINES = ("datasheet", "user", "paired_ceiling", "ceiling")
"""The first of these that is known is shown first."""

METHODS = ("exact", "batch", "epoch", "theory", "one")
"""The first of these that could count is the numerator that is shown first."""

RECORDED_METHODS = frozenset(("one", "batch", "epoch"))
"""Those of the 2021 post that a profiler records. Its arithmetic is shown where one of them was asked for."""


@dataclass(frozen=True)
class View:
    """One cell: its row, its fractions, and what its operation table holds (None: no table).

    memory_bytes_per_s: rate of the device's memory, measured in the session or of the datasheet; None: not known.
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
        """What sets the cell apart beside model, batch size, precision and device."""
        return next((row.variant for row in self.fractions if row.variant), "")

    @functools.cached_property
    def partial(self) -> bool:
        """Whether the exact count lacks calls that no rule counts."""
        return any(row.unknown_calls and row.method == "exact" for row in self.fractions)

    @functools.cached_property
    def headline(self) -> Utilization | None:
        """The fraction shown first: the best numerator over the first known denominator; None without a ratio.

        Where the exact count lacks calls, a counter's forward pass is no answer: that it names none of them is no sign
        that it counts them.
        """
        methods = [method for method in METHODS if not (self.partial and method == "theory")]
        found = (self.fraction(method, denominator) for method in methods for denominator in HEADLINES)
        return next((fraction for fraction in found if fraction is not None), None)

    @functools.cached_property
    def methods_denominator(self) -> str | None:
        """The denominator under which methods are compared: the headline's where each method with a ratio has one over
        it, else the session's ceiling, since only whole steps have a paired one. None without a ratio."""
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
        """Any row of the cell that has a time, the best numerator's, with an achieved rate where there is one."""
        timed = sorted((row for row in self.fractions if row.time_s is not None), key=_place)
        return next((row for row in timed if row.achieved_flop_per_s is not None), timed[0] if timed else None)

    @functools.cached_property
    def step(self) -> Utilization | None:
        """Any row whose time is that of one step of the cell, not of one sample or an epoch."""
        rows = (row for row in self.fractions if row.method not in ("one", "epoch") and row.time_s is not None)
        return next(rows, None)

    def fraction(self, method: str, denominator: str) -> Utilization | None:
        """The row of this method and denominator, if it has a ratio."""
        for row in self.fractions:
            if (row.method, row.denominator) == (method, denominator) and row.utilization_ratio is not None:
                return row
        return None


@dataclass(frozen=True)
class Built:
    """Everything derived from one run directory. problems: what was wrong with its files, a line each."""

    cleaned: Cleaned
    utilization: tuple[Utilization, ...]
    step_times: tuple[StepTime, ...]
    views: tuple[View, ...]
    sittings: tuple[Sitting, ...]
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


def _place(row: Utilization) -> int:
    """The place of this row's method in the order of display."""
    return METHODS.index(row.method) if row.method in METHODS else len(METHODS)
