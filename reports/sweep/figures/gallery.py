"""Every figure of a run, drawn from the derived tables in one directory and from nothing else.

A table that is missing or empty makes fewer figures, never an error. Tables are read with the types of their records;
no raw file is opened, nothing is computed again and no file is written here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.devices.peaks import STAND_IN_MARK
from cleaning.reconcile.view import RECORDED_METHODS
from reports.shared import figure_style
from reports.sweep.figures import backward_ratio, cleaning_stages, counters, epoch_times, utilization
from reports.sweep.figures import methods as figures_methods
from reports.sweep.figures import profiles as figures_profiles
from results.records.answers import Utilization, WorkTime
from results.records.counts import Agreement, CleanedOperation, ProfileCount, Ratio
from results.records.rows import Record

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

UTILIZATION = "utilization.csv"
POST2021 = "utilization_post2021.csv"
AGREEMENT = "cleaned/agreement.csv"
PROFILE_COUNTS = "cleaned/profile_counts.csv"
RATIOS = "cleaned/ratios.csv"
WORK_TIMES = "work_times.csv"
PROFILED = "cleaned/profiled_operations.csv.gz"

NO_HARDWARE = "on a stand-in device: no hardware was measured"

_NAMES = ("model", "workload")
"""Columns of names that somebody chose."""


def figures(directory: Path) -> dict[str, Figure]:
    """File name → figure, for whatever tables `directory` holds. Draw and render inside `style.theme()`.

    Raises ValueError for a file that is not the table its name says.
    """
    fractions = _drawable(directory / UTILIZATION, Utilization)
    drawn = utilization.figures(fractions)
    drawn |= figures_methods.by_method(fractions)
    of_the_post = _drawable(directory / POST2021, Utilization)
    if RECORDED_METHODS & set(of_the_post["method"]):
        drawn |= figures_methods.by_method(of_the_post, post2021=True)
    drawn |= counters.by_counter(_drawable(directory / AGREEMENT, Agreement))
    counts = _drawable(directory / PROFILE_COUNTS, ProfileCount)
    models = {**_column(counts, "model"), **_column(fractions, "model")}
    drawn |= figures_profiles.by_batch(counts, _column(fractions, "variant"))
    drawn |= cleaning_stages.states(counts, _column(fractions, "variant"))
    drawn |= figures_profiles.by_operation(_drawable(directory / PROFILED, CleanedOperation), models)
    drawn |= backward_ratio.ratios(_drawable(directory / RATIOS, Ratio))
    drawn |= epoch_times.epoch_times(_drawable(directory / WORK_TIMES, WorkTime))
    if fractions["warnings"].str.contains(f'"{STAND_IN_MARK}:', regex=False).any():
        for figure in drawn.values():  # on the edge: no picture has anything there
            figure.text(0.999, 0.5, NO_HARDWARE, ha="right", va="center", rotation=90, fontsize=6)
    return drawn


def _drawable(path: Path, record: type[Record]) -> pd.DataFrame:
    """A derived table whose names are drawn as they stand."""
    frame = read(path, record)
    named = [name for name in _NAMES if name in frame]
    return frame.assign(**{name: frame[name].map(figure_style.label) for name in named})


def _column(frame: pd.DataFrame, name: str) -> dict[str, str]:
    """cell id → the text of a column."""
    return dict(zip(frame["cell_id"], frame[name], strict=True))


def read(path: Path, record: type[Record]) -> pd.DataFrame:
    """A derived table (.csv or .csv.gz) with the types of its record; no rows where the file is missing or empty."""
    from results.store.tables import read_records, table

    return table(record, read_records(path, record))
