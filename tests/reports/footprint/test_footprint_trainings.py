"""The sentences on the runs of one source: which they are, and the line through measured and predicted."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from analysis.footprint.step.published import Published, published
from benchmarks.pages.footprint import read_published
from reports.footprint.published_trainings import SOURCE, by_the_others, line, trainings
from results.records.footprint import FootprintPrediction

PREDICTED = read_published(Path(__file__).parents[3] / "tests/data/footprint")
ROWS = [row for row in published() if row.source == SOURCE]
MIB = 2**20

DEVICE_BYTES = {"RTX 4060": int(7.642578125 * 2**30), "RTX 3060": 12_622_168_064}
"""As the source's files have it."""

PARAMETERS = {
    "convnext_base": 88_591_464,
    "convnext_tiny": 28_589_128,
    "mnasnet1_0": 4_383_312,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856,
    "regnet_x_400mf": 5_495_976,
    "regnet_y_400mf": 4_344_144,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet50": 25_557_032,
}
"""torchvision's documentation, with 1000 classes."""

LAST_WIDTHS = {"mnasnet1_0": 1280, "mobilenet_v3_large": 1280, "mobilenet_v3_small": 1024}
"""Of those with 10 classes."""


def made_up(model: str, predicted_mib: int, measured_mib: float) -> tuple[Published, FootprintPrediction]:
    name = f"{model} b{predicted_mib}"
    row = Published(
        name=name, model=model, batch_size=1, precision="tf32", optimizer="sgd", quantity="process", within_bytes=0,
        measured_bytes=round(measured_mib * MIB), source=SOURCE, assumed="nothing", gpu="G",
    )  # fmt: skip
    return row, FootprintPrediction(name=name, predicted_bytes=predicted_mib * MIB,
                          without_bytes=predicted_mib * MIB // 2,
                          live_bytes=1, predicted_at="x", predicted_phase="backward")  # fmt: skip


def test_the_rows_are_those_of_the_rule() -> None:
    """Parameters of at most 5 % of the prediction, that of at most 80 % of the device, each run once."""
    assert len(ROWS) == 41
    for row in ROWS:
        fewer = 990 * (LAST_WIDTHS[row.model] + 1) if row.hyper.get("num_classes") == 10 else 0
        assert (row.model in LAST_WIDTHS) == bool(fewer)
        told = PREDICTED[row.name].predicted_bytes
        assert 4 * (PARAMETERS[row.model] - fewer) <= told / 20
        assert told <= 0.8 * DEVICE_BYTES[row.gpu]
        assert row.hyper["image_size"] == 86
        assert row.measured_bytes % MIB == 0  # as the driver counts
    assert len({(row.gpu, row.model, row.optimizer, row.batch_size) for row in ROWS}) == 41


def test_a_line_is_found_again_and_leaves_its_own_model_out() -> None:
    """measured = 100 + 0.9 predicted of two models; a third is 200 MiB above that, which its own line cannot tell."""
    pairs = [made_up(model, size, 100 + 0.9 * size) for model, size in (("a", 1000), ("a", 2000), ("b", 3000))]
    constant, slope = line(pairs, lambda each: each.predicted_bytes)
    assert constant == pytest.approx(100 * MIB, abs=2)
    assert slope == pytest.approx(0.9)
    odd = made_up("c", 4000, 300 + 0.9 * 4000)
    errors = by_the_others([*pairs, odd], lambda each: each.predicted_bytes)
    assert errors[-1] == pytest.approx(3700 / 3900 - 1)
    # without b: a's two alone and c, none of which is b's
    kept = [*pairs[:2], odd]
    slope, constant = numpy.polyfit(
        [each.predicted_bytes for _, each in kept], [row.measured_bytes for row, _ in kept], 1
    )
    assert errors[2] == pytest.approx((constant + slope * 3000 * MIB) / (2800 * MIB) - 1)


def test_the_sentences_have_the_numbers_of_the_rows() -> None:
    """Told again with numpy, from the columns."""
    text = " ".join(each.strip() for each in trainings(published(), PREDICTED))
    measured = numpy.array([row.measured_bytes for row in ROWS]) / MIB
    large = measured >= 1024
    for name, lead, after in (
        ("predicted_bytes", "line through all has", "of what is predicted; with that of the other models each is"),
        ("without_bytes", "Without the allowance the line has", ", and each is"),
    ):
        told = numpy.array([getattr(PREDICTED[row.name], name) for row in ROWS]) / MIB
        slope, constant = numpy.polyfit(told, measured, 1)
        assert f"{lead} {constant:.0f} MiB" in text
        off = []
        for at, row in enumerate(ROWS):
            others = [place for place, each in enumerate(ROWS) if each.model != row.model]
            other_slope, other_constant = numpy.polyfit(told[others], measured[others], 1)
            off.append(abs((other_constant + other_slope * told[at]) / measured[at] - 1))
        near = sum(each <= 0.05 for each in off)
        space = "" if after.startswith(",") else " "
        assert f"{slope:.3f}{space}{after} {100 * numpy.median(off):.1f} % off" in text
        assert f"{near} within 5 %" in text
        errors = told[large] / measured[large] - 1
        near, tenth, middle = sum(abs(errors) <= 0.05), sum(abs(errors) <= 0.1), f"{100 * numpy.median(errors):+.1f} %"
        told_so = {
            "predicted_bytes": f"more {near} are within 5 %, {tenth} within 10 %, and the median error is {middle};",
            "without_bytes": f"for cuDNN {near} and {tenth} are, and it is {middle}:",
        }
        assert told_so[name] in text
    more = (measured - told)[~large]
    assert f"The other {len(more)} have {min(more):.0f} to {max(more):.0f} MiB more" in text
    assert f"Of the {sum(large)} of 1 GiB and more" in text


def test_no_rows_no_sentence() -> None:
    assert trainings([row for row in published() if row.source != SOURCE], PREDICTED) == []
