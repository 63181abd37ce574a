"""What is said of choices of checkpoints: made-up ones, by hand.

Figures of a footprint: units of their axes and the numbers beside their points. Made-up answers.
"""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.footprint.checkpointing import Choice
from analysis.footprint.live_bytes import CATEGORIES
from reports.footprint.checkpoints import LINES, Checkpoints, columns, meaning, modules, parts
from reports.footprint.figures import curve, timeline
from reports.shared import figure_style
from reports.shared.layout import page

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
    two = meaning(Checkpoints(CHOICES[:2]))
    assert two.endswith("20 % less, and 10 % of the forward pass's FLOP are done again.")
    assert meaning(Checkpoints(CHOICES[:1])) == "No checkpoint of the model's modules was found that lowers the peak."


def test_a_line_a_choice() -> None:
    table = page(parts(Checkpoints(CHOICES, (0, 1, None, 2000)))).splitlines()[-5:]
    assert [" ".join(line.split()) for line in table] == [
        "peak if checkpointed saved FLOP again at most batch one checkpoint each",
        "10 GiB 0 % 0 % none none",
        "8 GiB 20 % 10 % 1 a",
        "7 GiB 30 % 15 % – a … b",
        "4 GiB 60 % 90 % 2,000 a … c; d",
    ]


@pytest.mark.parametrize("largest", [(), (7,) * 30])
def test_many_choices_and_long_names(largest: tuple[int, ...]) -> None:
    """So many as a table has room for, from the first to the last, within its width."""
    names = tuple((f"encoder.layers.{n}.feed_forward", f"encoder.layers.{n}.norm") for n in range(30))
    many = [Choice((100 - n) * GIB, n, n / 100, names[:n]) for n in range(30)]
    found = page(parts(Checkpoints(many, largest))).splitlines()
    assert max(map(len, found)) <= 100
    table = found[[line.startswith("peak") for line in found].index(True) + 1 :]
    assert len(table) == LINES + 1
    assert table[0].split()[:2] == ["100", "GiB"]
    assert table[-2].split()[:2] == ["71", "GiB"]
    assert table[-1].strip() == f"{30 - LINES} between these: --format csv"
    assert modules(many[6]).endswith(
        "; ".join(f"{a} … {b}" for a, b in names[3:4]) + f" and 2 more, to {' … '.join(names[5])}"
    )


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
