"""Figures of a footprint: units of their axes and the numbers beside their points. Made-up answers."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.footprint.checkpointing import Choice
from analysis.footprint.live_bytes import CATEGORIES
from reports.footprint.checkpoints import Checkpoints
from reports.footprint.figures import curve, timeline
from reports.shared import figure_style

KIB, GIB = 2**10, 2**30


def answer(peak: int, **more: object) -> Any:
    lived = {name: [0, 0, 0] for name in CATEGORIES} | {CATEGORIES[0]: [0, peak, 0]}
    found = SimpleNamespace(
        timeline=lived, total_bytes=[0, peak, 0], at_least_bytes=peak, unknown=(),
        peak_at=SimpleNamespace(index=0, operation="aten.mm", module="fc"),
    )  # fmt: skip
    operations = [SimpleNamespace(phase="forward"), SimpleNamespace(phase="backward")]
    named = {"model": "net", "batch_size": 8, "precision": "fp32", "optimizer": "sgd"}
    return SimpleNamespace(**named, found=found, operations=operations, fitted=None, **more)


@pytest.mark.parametrize(("peak", "unit"), [(3 * GIB, "GiB"), (5 * KIB, "KiB"), (100, "bytes")])
def test_bytes_over_a_step_are_in_the_largest_unit_that_they_reach(peak: int, unit: str) -> None:
    with figure_style.theme():
        (axes,) = timeline(answer(peak)).axes
    assert axes.get_ylabel() == f"live bytes, {unit}"
    assert axes.get_title("left").endswith(f"{peak // {'GiB': GIB, 'KiB': KIB, 'bytes': 1}[unit]} {unit}")


def test_the_first_and_the_last_choice_have_their_bytes_beside_them() -> None:
    choices = tuple(Choice(size * GIB, 0, ratio, ()) for size, ratio in ((10, 0.0), (8, 0.1), (4, 0.9)))
    with figure_style.theme():
        figure = curve(answer(10 * GIB, checkpoints=Checkpoints(choices)))
        figure.savefig(io.BytesIO())
    (axes,) = figure.axes
    shown = {each.get_text(): (each.xy, each.xyann, each.anncoords) for each in axes.texts}
    assert shown == {
        "10 GiB": ((0.0, 10.0), (6, 5), "offset points"),
        "4 GiB": ((90.0, 4.0), (6, 5), "offset points"),
    }
