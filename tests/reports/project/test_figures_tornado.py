"""The tornado: a bar for each input as wide as its swing, numbers that tell ends apart, everything on the page."""

from __future__ import annotations

import pytest

from analysis.stats.intervals import Estimate, Swing
from reports.project.tornado_figure import tornadoes
from reports.shared import figure_style

FOUND = {
    "loss": (Estimate(2.2387, 2.2191, 2.2678), [Swing("utilization", 2.2194, 2.2642), Swing("law", 2.2316, 2.2502)]),
    "co2_kg": (Estimate(104.0, 28.7, 384.0), [Swing("intensity", 30.2, 362.0), Swing("watts", 97.2, 112.0)]),
    "cost": (Estimate(3762.0, 3072.0, 4606.0), [Swing("price", 3072.0, 4606.0)]),
}


def test_bars_are_the_swings_and_numbers_fit() -> None:
    with figure_style.theme():
        figure = tornadoes(FOUND, 0.95)
        loss, carbon, cost = figure.axes
        spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in loss.patches]
        assert spans == [pytest.approx(ends) for ends in ((2.2194, 2.2642), (2.2316, 2.2502), (2.2191, 2.2678))]
        assert [label.get_text() for label in loss.get_yticklabels()] == ["utilization", "scaling law", "all together"]
        assert [label.get_text() for label in cost.get_yticklabels()] == ["price of an hour"]  # alone: no "together"
        assert (loss.get_xscale(), carbon.get_xscale()) == ("linear", "log")
        told = [text.get_text() for text in loss.texts]
        assert told[:4] == ["2.219", "2.264", "2.232", "2.250"]
        assert loss.get_title(loc="left") == "loss, nats per token: 2.239"
        figure.draw_without_rendering()
        page = figure.bbox
        for axes in figure.axes:
            low, high = axes.get_xlim()
            ticks = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
            for text in (*axes.texts, *axes.get_yticklabels(), *ticks):
                box = text.get_window_extent()
                assert box.x0 >= -1
                assert box.x1 <= page.x1 + 1, text.get_text()
        assert not {"", "nan"} & set(told)


def test_an_estimate_of_nothing_has_a_title() -> None:
    with figure_style.theme():
        figure = tornadoes({"cost": (Estimate(0.0, -1.0, 1.0), [Swing("price", -1.0, 1.0)])}, 0.95)
    assert [axis.get_title(loc="left").rpartition(": ")[2] for axis in figure.axes] == ["0"]
