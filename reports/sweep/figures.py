"""Every figure of a run, drawn from its derived tables and from nothing else.

A table without rows makes fewer figures, never an error. No file is opened or written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.devices.peaks import STAND_IN_MARK
from cleaning.reconcile.variants import RECORDED_METHODS
from reports.shared import figure_style
from reports.sweep import profile_figures, utilization_figures
from results.records.answers import Utilization, WorkTime
from results.records.counts import CleanedOperation, ProfileCount, Ratio
from results.records.rows import Record
from results.store.layout import table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from cleaning.reconcile.variants import Built

NO_HARDWARE = "on a stand-in device: no hardware was measured"


def figures(built: Built) -> dict[str, Figure]:
    """File name → figure, for whatever tables have rows. Draw and render inside `figure_style.theme()`."""
    fractions, of_the_post = _drawable(built.utilization, Utilization), _drawable(built.post2021, Utilization)
    counts = _drawable(built.profile_counts, ProfileCount)
    variants, models = _column(fractions, "variant"), {**_column(counts, "model"), **_column(fractions, "model")}
    drawn = utilization_figures.figures(fractions)
    drawn |= utilization_figures.by_method(fractions)
    if RECORDED_METHODS & set(of_the_post["method"]):
        drawn |= utilization_figures.by_method(of_the_post, post2021=True)
    drawn |= profile_figures.by_batch(counts, variants)
    drawn |= profile_figures.by_operation(_drawable(built.cleaned_operations, CleanedOperation), models)
    drawn |= profile_figures.ratios(_drawable(built.ratios, Ratio))
    drawn |= utilization_figures.epoch_times(_drawable(built.work_times, WorkTime))
    if fractions["warnings"].str.contains(f'"{STAND_IN_MARK}:', regex=False).any():
        for figure in drawn.values():  # on the edge: no picture has anything there
            figure.text(0.999, 0.5, NO_HARDWARE, ha="right", va="center", rotation=90, fontsize=6)
    return drawn


def _drawable(rows: Sequence[Record], record: type[Record]) -> pd.DataFrame:
    """Rows as a table in which names of models are drawn as they stand."""
    frame = table(record, rows)
    return frame.assign(model=frame["model"].map(figure_style.label)) if "model" in frame else frame


def _column(frame: pd.DataFrame, name: str) -> dict[str, str]:
    """cell id → the text of a column."""
    return dict(zip(frame["cell_id"], frame[name], strict=True))
