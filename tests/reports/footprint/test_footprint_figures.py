"""Figures of a footprint: units of their axes. Made-up answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.footprint.live_bytes import CATEGORIES
from reports.footprint.figures import timeline
from reports.shared import figure_style

GIB = 2**30
KIB = 2**10


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
