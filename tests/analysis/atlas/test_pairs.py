"""Published steps that differ in one thing: which rows are pairs, and their ratios by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.atlas import PublishedStep, paired_ratios, pairs_of, published_steps, summary

ROW = PublishedStep(
    source="timm", commit="c", file="f.csv", row=1, model="a", counted_model="timm:a", mode="train",
    precision="amp-fp16", layout="channels_first", framework="torch 1.12", device="NVIDIA GeForce RTX 3090",
    batch_size=64, image_size=224, items_per_s=100.0, status="ok",
)  # fmt: skip
LAYOUTS = [("channels_first", "channels_last")]


def both(rate, first=100.0, **other):
    """A pair of rows in two layouts."""
    one = replace(ROW, items_per_s=first, **other)
    return [one, replace(one, layout="channels_last", items_per_s=rate)]


def test_ratios_of_pairs_are_second_over_first():
    rows = [*both(110.0), *both(150.0, model="b", counted_model="timm:b"), *both(80.0, counted_model="timm:c")]
    (found,) = paired_ratios(summary.frame(rows), "layout", LAYOUTS, ("mode", "device"))
    assert (found.pairs, found.models, found.of) == (3, 3, ("train", "NVIDIA GeForce RTX 3090"))
    assert (found.low, found.median, found.high) == pytest.approx((0.95, 1.1, 1.3))  # quartiles of 0.8, 1.1, 1.5
    assert found.above_one_ratio == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 32},
        {"framework": "torch 1.10"},
        {"device": "NVIDIA GeForce RTX 4090"},
        {"devices": 2},
        {"mode": "infer"},
        {"image_size": 288},
        {"precision": "bf16"},
        {"compiled": True},
        {"source": "Lambda"},
        {"counted_model": "timm:b"},
    ],
)
def test_rows_that_differ_in_more_than_one_thing_are_no_pair(other):
    first, second = both(110.0)
    rows = summary.frame([first, replace(second, **other)])
    assert paired_ratios(rows, "layout", LAYOUTS, ("mode",)) == []
    (found,) = paired_ratios(summary.frame(both(110.0, **other)), "layout", LAYOUTS, ("mode",))
    assert found.median == pytest.approx(1.1)


def test_what_is_left_out_may_differ():
    first, second = both(110.0)
    rows = summary.frame([first, replace(second, batch_size=32)])
    (found,) = paired_ratios(rows, "layout", LAYOUTS, ("mode",), but_for=("batch_size",))
    assert found.pairs == 1


def test_several_rows_of_a_side_are_their_median_and_refused_ones_are_left_out():
    first, second = both(200.0)
    rows = [first, replace(first, items_per_s=300.0), second, replace(second, items_per_s=999.0, status="other_model")]
    (found,) = paired_ratios(summary.frame(rows), "layout", LAYOUTS, ("mode",))
    assert found.median == pytest.approx(200 / 200)  # the median of 100 and 300


def test_how_many_settings_have_several_batches():
    """What docs/findings.md says of batch sizes, counted without pandas."""
    batches: dict = {}
    for row in published_steps():
        if row.status == "ok" and row.items_per_s is not None and row.batch_size is not None:
            key = (
                row.source, row.counted_model, row.image_size, row.mode, row.device, row.devices, row.precision,
                row.layout, row.framework, row.compiled, row.sequence_length, row.power_limit_w,
            )  # fmt: skip
            batches.setdefault(key, set()).add(row.batch_size)
    several = [key for key, found in batches.items() if len(found) > 1]
    assert {key[0] for key in several if key[3] == "train"} == {"NeuSight", "Zeus"}
    assert {key[0] for key in several if key[3] == "infer"} == {"NVIDIA examples", "NeuSight"}
    wide = pairs_of(summary.frame(published_steps()), "batch_size")
    assert len(wide) == len(batches)
    assert (wide.notna().sum(axis=1) > 1).sum() == len(several) > 0


def test_batches_are_named_as_whole_numbers():
    rows = summary.frame([ROW, replace(ROW, batch_size=128, items_per_s=150.0)])
    (found,) = paired_ratios(rows, "batch_size", [("64", "128")], ("mode",))
    assert found.median == pytest.approx(1.5)
