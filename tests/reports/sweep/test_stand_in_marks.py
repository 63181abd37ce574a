"""Rows, manifest and figures of a run on a stand-in device say that no hardware was measured; others do not."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import pytest

from analysis.devices.peaks import stand_in_warning
from cleaning.reconcile.run import build
from measure.device.environment import DeviceProperties
from reports.shared import figure_style
from reports.sweep.figures import gallery
from results.store.reading import read_operation_table, read_run
from results.store.store import read_profile
from runners.sweep.command import _notes
from runners.workers.devices import ProbeResult

ROOT = Path(__file__).parents[3]
RUN = ROOT / "results/published/amd-epyc-2-cores-2026-11-29"
NAME = "Stand-in of NVIDIA H100 80GB HBM3"


def words(directory: Path) -> list[set[str]]:
    """The texts at the edge of each figure."""
    import matplotlib.pyplot as plt

    with figure_style.theme():
        drawn = gallery.figures(directory)
        found = [{text.get_text() for text in figure.texts} for figure in drawn.values()]
        for figure in drawn.values():
            plt.close(figure)
    return found


@pytest.mark.parametrize("marked", [True, False])
def test_each_figure_says_so(tmp_path: Path, marked: bool) -> None:
    built = build(read_run(RUN), partial(read_operation_table, RUN), partial(read_profile, RUN))
    rows = [row.to_row() for row in built.utilization]
    warning = f'["{stand_in_warning(NAME)}"]' if marked else "[]"
    with open(tmp_path / gallery.UTILIZATION, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "warnings": warning} for row in rows)
    found = words(tmp_path)
    assert found
    assert {gallery.NO_HARDWARE in texts for texts in found} == {marked}


def test_the_manifest_says_so() -> None:
    (note,) = _notes(ProbeResult(device="cuda", properties=DeviceProperties(name=NAME, stand_in=True)))
    assert note == f"stand_in: {NAME} computes nothing: no hardware was measured"
    real = DeviceProperties(name="NVIDIA H100 80GB HBM3", stand_in=False)
    assert _notes(ProbeResult(device="cuda", properties=real)) == ()
    assert _notes(ProbeResult(device="cuda")) == ()
