"""Draws every figure of a run, for its folder and its page.

`figures` takes the run's derived tables (`Built`) and returns file name → figure. A table without rows makes fewer
figures, never an error. No file is opened or written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.devices.peaks import STAND_IN_MARK
from reports.sweep import epoch_figures, profile_figures, utilization_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cleaning.reconcile.derived import Built

NO_HARDWARE = "on a stand-in device: no hardware was measured"

CAPTIONS = utilization_figures.CAPTIONS | profile_figures.CAPTIONS | epoch_figures.CAPTIONS
"""Figure → its caption on the page."""


def figures(built: Built) -> dict[str, Figure]:
    """Return file name → figure, for all tables that have rows. Draw and render inside `figure_style.theme()`."""
    drawn = utilization_figures.figures(built) | profile_figures.figures(built)
    drawn |= epoch_figures.epoch_times(built.work_times)
    if any(mark.startswith(f"{STAND_IN_MARK}:") for row in built.utilization for mark in row.warnings):
        for figure in drawn.values():  # on the edge: no picture has anything there
            figure.text(0.999, 0.5, NO_HARDWARE, ha="right", va="center", rotation=90, fontsize=6)
    return drawn
