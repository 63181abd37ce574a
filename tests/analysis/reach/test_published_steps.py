"""What others measured: nothing is under its bound, and which rows are nearest to a model and a device."""

from __future__ import annotations

import pytest

from analysis.devices.peaks import lookup
from analysis.reach.published_steps import family_of, nearest_steps, published_rows


def test_no_published_step_is_under_its_least_time():
    """But for 11 of 20,976 on a GeForce card, by at most 4 %: its boost clock is nominal, and its L2 cache of 72 MB
    keeps tensors that the bound reads from memory."""
    rows = published_rows()
    ratio = rows["bound_time_s"] / rows["step_time_s"]
    faster = rows[ratio > 1]
    assert ratio.notna().sum() > 20_000
    assert len(faster) <= 11
    assert set(faster["device"]) == {"NVIDIA GeForce RTX 4090"}
    assert ratio.max() < 1.04
    assert rows["utilization_ratio"].between(0, 1).all()


def test_the_ratio_of_a_row_is_that_of_its_numbers():
    rows = published_rows().dropna(subset=["model_flop", "step_time_s"])
    again = rows["model_flop"] / rows["peak_flop_per_s"] / rows["step_time_s"]
    assert again.to_numpy() == pytest.approx(rows["utilization_ratio"].to_numpy(), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "device", "mode", "what", "names"),
    [
        ("resnet50", "NVIDIA GeForce RTX 3090", "train", "this model", {"timm:resnet50"}),
        ("hf:gpt2-large", "Tesla V100-PCIE-32GB", "train", "this model", {"gpt2_large"}),
        ("wide_resnet50_2", "NVIDIA H200", "train", "models of its family", {"timm:resnet50"}),
        ("vgg11", "NVIDIA H200", "train", "this model on other devices", {"timm:vgg11"}),
        ("mine.py:net", "NVIDIA H200", "train", "other models", {"timm:resnet50"}),
    ],
)
def test_the_nearest_rows(model, device, mode, what, names):
    found, rows = nearest_steps(model, lookup(device), mode)
    assert found == what
    assert set(rows["counted_model"]) <= names
    assert 0 < len(rows) <= 5
    assert (rows["mode"] == mode).all()
    assert rows["utilization_ratio"].is_monotonic_decreasing
    assert ((rows["device"] == device).all()) == ("other devices" not in what)


def test_rows_of_compiled_steps_only_and_none():
    card = lookup("NVIDIA GeForce RTX 4090")
    _, rows = nearest_steps("resnet50", card, "infer", only_compiled=True)
    assert rows["compiled"].all()
    assert len(nearest_steps("resnet50", card, "infer")[1]) > 0
    assert nearest_steps("mine.py:net", lookup("Tesla K80"), "train")[0] == ""


@pytest.mark.parametrize(
    ("model", "family"),
    [("vit_b_16", "vision_transformer"), ("timm:resnet50.a1_in1k", "resnet"), ("inception_v3", "inception_v3"),
     ("resnext50_32x4d", "resnet"), ("wordlm", "")],
)  # fmt: skip
def test_the_family_of_a_model(model, family):
    assert family_of(published_rows(), model) == family
