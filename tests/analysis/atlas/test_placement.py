"""A step of one's own among published ones: percentile, prediction, bound, surprises, refusals. Numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.atlas import REFUSED, ExpectedStep, PublishedStep, family_of, place, published_steps, refusal
from analysis.atlas.placement import ALL_DEVICES, THIS_DEVICE, peers_of, percentile_of
from results.records import Headline

CARD, OTHER = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"

CELL = Headline(
    cell_id="c1", attempt=1, model="resnet50", batch_size=64, precision="amp-fp16", device="cuda", device_name=CARD,
    step_time_s=0.1, model_flop=10**12, denominator="datasheet", method="exact", utilization_ratio=0.35, status="ok",
)  # fmt: skip


def a_row(ratio, **other):
    row = PublishedStep(
        source="timm", commit="c", file="f.csv", row=1, model="resnet50", counted_model="timm:resnet50",
        family="resnet", mode="train", precision="amp-fp16", layout="channels_last", framework="torch", device=CARD,
        batch_size=64, utilization_ratio=ratio,
    )  # fmt: skip
    return replace(row, **other)


ROWS = [a_row(step / 10) for step in range(10)]
"""0, 0.1, …, 0.9: below 0.35 are 0, 0.1, 0.2 and 0.3, four of ten."""


@pytest.mark.parametrize(
    ("value", "others", "wanted"),
    [
        (0.35, [0.1, 0.2, 0.3, 0.4, 0.5], 60.0),  # three of five below
        (0.2, [0.1, 0.2, 0.2, 0.3], 50.0),  # one below, two equal: (1 + 2 / 2) / 4
        (0.0, [0.1], 0.0),
        (1.0, [0.1, 0.2], 100.0),
    ],
)
def test_percentile_counts_what_is_below_and_half_of_what_is_equal(value, others, wanted):
    assert percentile_of(value, others) == pytest.approx(wanted)


def test_percentile_among_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="expected at least one value"):
        percentile_of(0.5, [])


def test_a_cell_is_placed_among_rows_of_its_device():
    rows = [*ROWS, *(a_row(0.9, device=OTHER) for _ in range(20))]
    found = place(CELL, rows, ExpectedStep())
    assert (found.rows_of, found.rows, found.percentile) == (THIS_DEVICE, 10, 40.0)
    assert found.median_ratio == pytest.approx(0.45)
    assert found.sources == ("timm",)


def test_with_too_few_rows_of_its_device_a_cell_is_placed_among_all():
    rows = [*ROWS[:9], *(a_row(0.9, device=OTHER, source="Lambda") for _ in range(7))]
    found = place(CELL, rows, ExpectedStep())
    assert (found.rows_of, found.rows, found.sources) == (ALL_DEVICES, 16, ("Lambda", "timm"))
    assert found.percentile == 100 * 4 / 16


def test_with_too_few_rows_at_all_there_is_no_percentile():
    found = place(CELL, ROWS[:9], ExpectedStep())
    assert found.percentile is None
    assert "9 published rows of resnet, train, 16 bit: expected at least 10" in found.no_percentile


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "infer"},
        {"precision": "fp32"},
        {"devices": 8},
        {"utilization_ratio": None},
        {"family": "vgg"},
    ],
)
def test_other_modes_arithmetic_systems_and_families_are_not_compared(other):
    assert peers_of([a_row(0.5), a_row(0.5, **other)], "resnet", "train", "amp-bf16") == [a_row(0.5)]


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("resnet50", "resnet"),
        ("timm:resnet50.a1_in1k", "resnet"),
        ("wide_resnet50_2", "resnet"),
        ("mobilenet_v2", "efficientnet"),
        ("vit_b_16", "vision_transformer"),
        ("swin_t", "swin_transformer"),
        ("wordlm", ""),
    ],
)
def test_the_family_of_a_model(model, family):
    assert family_of(published_steps(), model) == family


def test_measured_over_predicted_and_the_share_of_the_bound():
    expected = ExpectedStep(predicted_s=0.08, low_s=0.07, high_s=0.11, is_measured=True, bound_s=0.05)
    found = place(CELL, ROWS, expected)
    assert found.over_predicted_ratio == pytest.approx(1.25)  # 0.1 ÷ 0.08
    assert found.achieved_over_bound_ratio == pytest.approx(0.5)  # 0.05 ÷ 0.1
    assert found.inside_interval is True
    assert found.surprises == ()


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (
            ExpectedStep(predicted_s=0.05, low_s=0.04, high_s=0.06),
            "slower than predicted: 2.00 × the time, interval 0.80",
        ),
        (
            ExpectedStep(predicted_s=0.2, low_s=0.15, high_s=0.3),
            "faster than predicted: 0.50 × the time, interval 0.75",
        ),
        (ExpectedStep(bound_s=0.2), "faster than its least time, 2 × of the bound"),
    ],
)
def test_surprises(expected, words):
    (found,) = place(CELL, ROWS, expected).surprises
    assert words in found


def test_a_cell_under_the_tenth_percentile_is_a_surprise():
    (found,) = place(replace(CELL, utilization_ratio=0.0), ROWS, ExpectedStep()).surprises
    assert "percentile 5.0 of the utilization of resnet, 10 rows" in found  # none below, one equal


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"device": "cpu", "device_name": "A CPU"}, "measured on a CPU"),
        ({"denominator": "ceiling"}, "of the peak by ceiling"),
        ({"device_name": "NVIDIA GeForce RTX 3099"}, "no NVIDIA GeForce RTX 3099, nearest"),
        ({"status": "out_of_memory"}, "not measured (out_of_memory)"),
        ({"utilization_ratio": None, "reason": "no peak"}, "no utilization: no peak"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(other, words):
    cell = replace(CELL, **other)
    assert words in refusal(cell)
    found = place(cell, ROWS, ExpectedStep(predicted_s=1.0, low_s=0.5, high_s=2.0, bound_s=0.1))
    assert found.status == REFUSED
    assert words in found.reason
    assert (found.percentile, found.over_predicted_ratio, found.achieved_over_bound_ratio) == (None, None, None)


def test_a_stand_in_is_marked():
    assert place(replace(CELL, device_name=f"Stand-in of {CARD}"), ROWS, ExpectedStep()).stand_in
