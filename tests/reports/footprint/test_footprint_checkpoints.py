"""What is said of choices of checkpoints: made-up ones, by hand.

Figures of a footprint: units of their axes. Made-up answers.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.footprint.checkpointing import Choice
from analysis.footprint.live_bytes import CATEGORIES
from reports.footprint.checkpoints import Checkpoints, columns, meaning
from reports.footprint.figures import timeline
from reports.shared import figure_style

GIB = 2**30
CHOICES = (
    Choice(10 * GIB, 0, 0.0, ()),
    Choice(8 * GIB, 100, 0.1, (("a",),)),
    Choice(7 * GIB, 150, 0.15, (("a", "b"),)),
    Choice(4 * GIB, 900, 0.9, (("a", "b", "c"), ("d",))),
)


def test_the_sentence_by_hand() -> None:
    """6 of 10 GiB are gained; half of these, 3, at 15 %. The batch that is not known is not the largest."""
    alone = meaning(Checkpoints(CHOICES))
    assert alone == (
        "Checkpoints take the peak down to 4 GiB at the least, 60 % less, and 90 % of the forward pass's FLOP are done "
        "again; 15 % again bring half of that."
    )
    fitted = meaning(Checkpoints(CHOICES, (32, 40, 1045, None)))
    assert fitted == f"{alone} By live bytes the largest batch goes from 32 to 1,045, predicted from two small ones."


def test_a_row_a_choice() -> None:
    rows = columns(Checkpoints(CHOICES))
    assert [row["checkpoint_peak_bytes"] for row in rows] == [each.peak_bytes for each in CHOICES]
    assert rows[3]["checkpoint_modules"] == "a … c; d"
    assert rows[3]["checkpoint_largest_batch"] is None


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
