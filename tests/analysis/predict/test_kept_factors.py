"""The kept factors are those of the kept tables, and predictions are refused where nothing like them was measured."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.atlas import TABLE, published_steps
from analysis.predict import AMOUNTS, COMPILED, EAGER, Machine, Setting, StepKey, fitted_model, kept_amounts, predict
from analysis.predict.evaluation import (
    DEVICE_SPLITS,
    SPLITS,
    key_of,
    machine_of,
    other_rows,
    parts_by_device,
    parts_by_family,
    setting_of,
    usable,
)
from analysis.predict.operation_amounts import Amounts
from results import Unavailable

DEVICE = "NVIDIA GeForce RTX 3090"
TRAINING = Setting("train", "channels_last", False, DEVICE, "amp-fp16")
KEY = StepKey("timm:resnet50", 224, "train")


def test_factors_and_page_are_of_these_tables():
    kept = fitted_model().details["provenance"]["sha256"]
    page = Path("docs/predict.md").read_text(encoding="utf-8")
    for path in (TABLE, AMOUNTS, SPLITS, DEVICE_SPLITS):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert kept[path.name] == digest, (
            f"{path.name} changed: python -m benchmarks.pages.predict --write docs/predict.md"
        )
        assert digest[:16] in page


def test_the_readme_has_the_numbers_of_these_tables():
    """Rows of GPUs with a utilization, and the medians of the page's lines of families left out."""
    readme, page = (Path(name).read_text(encoding="utf-8") for name in ("README.md", "docs/predict.md"))
    used = sum(row.utilization_ratio is not None and "Intel" not in row.device for row in published_steps())
    assert f"{used:,} published\nsteps" in readme
    medians = [
        re.search(rf"\| {mode} \| eager \| this model \| [\d,]+ \| ([\d.]+ %)", page)[1] for mode in ("train", "infer")
    ]
    assert "is {} in training and\n{} in inference".format(*medians) in readme


def test_each_family_is_in_one_of_ten_parts():
    parts = parts_by_family()
    assert set(parts.values()) == set(range(10))
    rows = [row for row in published_steps() if usable(row)]
    assert {row.family for row in rows} <= set(parts)
    assert {key_of(row) for row in rows} <= set(kept_amounts())


def test_each_device_is_a_part_of_its_own_and_was_covered_when_left_out():
    parts = parts_by_device()
    assert set(parts) == {row.device for row in published_steps() if usable(row)}
    assert len(set(parts.values())) == len(parts)
    coverage = fitted_model().details["coverage"]["devices"]
    assert all(coverage[device][0] >= 0.85 for device in parts), "below that an interval has to be wider, or refused"


def test_the_kept_factors_meet_the_rows_that_they_were_fitted_on():
    """Every 20th row: half of them within a tenth. In the sample, so no measure of what a prediction is worth."""
    steps, model = kept_amounts(), fitted_model()
    errors = []
    for row in [row for row in published_steps() if usable(row)][::20]:
        machine = machine_of(row.device, row.precision)
        found = predict(model, steps[key_of(row)], row.batch_size, setting_of(row), machine)
        errors.append(abs(found.time_s / row.step_time_s - 1))
    assert sorted(errors)[len(errors) // 2] < 0.1
    assert len(errors) > 900


def test_a_prediction_adds_up_and_lies_in_its_interval():
    found = predict(fitted_model(), kept_amounts()[KEY], 128, TRAINING, machine_of(DEVICE, "amp-fp16"))
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s)
    assert found.low_s < found.time_s < found.high_s
    assert found.device == "measured"
    assert "torch 1.12" in found.fitted_on, "of the versions that were measured the newest"
    for part in found.parts:
        assert part.time_s > 0


def test_a_device_that_was_not_measured_has_a_wider_interval():
    machine = machine_of(DEVICE, "amp-fp16")
    own = predict(fitted_model(), kept_amounts()[KEY], 128, TRAINING, machine)
    other = predict(fitted_model(), kept_amounts()[KEY], 128, replace(TRAINING, device="NVIDIA A10"), machine)
    assert other.device == "not measured"
    assert other.high_s / other.low_s > own.high_s / own.low_s
    assert other.fitted_on == TRAINING.pool.text


def test_the_interval_does_not_reach_under_the_bound():
    machine = machine_of(DEVICE, "amp-fp16")
    free = predict(fitted_model(), kept_amounts()[KEY], 128, TRAINING, machine)
    held = predict(fitted_model(), kept_amounts()[KEY], 128, TRAINING, machine, bound_s=free.time_s * 0.99)
    assert held.low_s == pytest.approx(free.time_s * 0.99)
    assert not held.is_raised
    assert predict(fitted_model(), kept_amounts()[KEY], 128, TRAINING, machine, bound_s=free.time_s * 1.1).is_raised


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"compiled": True}, "no one published train, channels_last, compiled steps"),
        ({"precision": "fp32"}, "no published step in fp32 was fitted, only in amp-bf16, amp-fp16"),
    ],
)
def test_what_nobody_measured_is_refused(change, word):
    with pytest.raises(Unavailable, match=re.escape(word)):
        predict(fitted_model(), kept_amounts()[KEY], 128, replace(TRAINING, **change), Machine(71e12, 936e9))


def test_a_kind_of_operation_that_no_model_had_is_refused_if_it_weighs():
    step = dict(kept_amounts()[KEY][EAGER])
    step["sorting"] = Amounts(1, (0.0, 0.0), (0.0, 1e6))
    run = {EAGER: step, COMPILED: {}}
    predict(fitted_model(), run, 128, TRAINING, Machine(71e12, 936e9))
    step["sorting"] = Amounts(1, (0.0, 0.0), (0.0, 1e9))
    with pytest.raises(Unavailable, match="no published model has operations like its sorting"):
        predict(fitted_model(), run, 128, TRAINING, Machine(71e12, 936e9))


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_small_batches_of_inference_are_widened_on_devices_that_were_not_measured(layout):
    """The upper end holds 95 % of the published rows that it was taken from, by a count of its own."""
    model, steps = fitted_model(), kept_amounts()
    setting = Setting("infer", layout, False, "Tesla T4", "amp-fp16")
    rows = [row for row in other_rows(published_steps()) if row.mode == "infer" and row.batch_size < 32]
    held = 0
    for row in rows:
        asked = replace(setting, device=row.device)
        found = predict(model, steps[key_of(row)], row.batch_size, asked, machine_of(row.device, row.precision))
        assert found.is_widened
        assert found.coverage is None
        held += row.step_time_s <= found.high_s
    assert 0.9 <= held / len(rows) < 1
    step = steps[StepKey("timm:resnet50", 224, "infer")]
    for batch, device in ((32, "Tesla T4"), (8, DEVICE)):
        asked = replace(setting, device=device)
        assert not predict(model, step, batch, asked, machine_of(device, "amp-fp16")).is_widened
