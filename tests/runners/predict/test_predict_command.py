"""`runners.predict`: a model as text, CSV and JSON; what is refused."""

from __future__ import annotations

import csv
import io
import json

import pytest

from runners.predict.command import main
from tests.support.fakes.commands import refused, running

ASKED = ("resnet18", "--device", "NVIDIA GeForce RTX 3090", "--batch-size", 64)


@pytest.fixture
def run(capsys):
    return running(main, capsys)


def test_the_same_numbers_as_text_csv_and_json(run):
    found = json.loads(run(*ASKED, "--format", "json")[1])
    assert found["low_step_time_s"] < found["step_time_s"] < found["high_step_time_s"]
    assert found["bound_time_s"] <= found["low_step_time_s"]
    assert found["items_per_s"] == pytest.approx(64 / found["step_time_s"])
    used = found["model_flop"] / found["peak_flop_per_s"] / found["step_time_s"]
    assert found["utilization_ratio"] == pytest.approx(used)
    assert sum(part["time_s"] for part in found["parts"]) == pytest.approx(found["step_time_s"])
    assert found["step_energy_j"] is None
    assert "joules are not predicted" in found["no_step_energy"]
    (row,) = csv.DictReader(io.StringIO(run(*ASKED, "--format", "csv")[1]))
    assert float(row["step_time_s"]) == found["step_time_s"]
    text = run(*ASKED)[1]
    assert max(map(len, text.splitlines())) <= 100
    assert "A step takes about" in text
    assert "The interval held" in text


def test_a_least_time_that_is_none_is_not_printed(run):
    words = ("tests.support.nets.masked_nets:build", "--device", "NVIDIA GeForce RTX 3090")
    found = json.loads(run(*words, "--format", "json")[1])
    assert (found["bound_time_s"], found["attainable_ratio"], found["raised_to_bound"]) == (None, None, False)
    assert found["step_time_s"] > 0
    assert "at best" not in run(*words)[1]


def test_a_forward_pass_of_a_compiled_model(run):
    found = json.loads(run(*ASKED, "--mode", "infer", "--compile", "--format", "json")[1])
    assert found["device_status"] == "not measured", "compiled steps were published of other cards"
    assert found["eager_peak_bytes"] is None
    assert any(part["name"].startswith("fused") for part in found["parts"])


def test_what_cannot_be_answered_is_one_line(run):
    refused(run(*ASKED, "--compile"), "no one published train, channels_first, compiled steps", code=1)
    refused(run(*ASKED, "--precision", "fp32"), "no published step in fp32", code=1)
    refused(run("resnet18", "--device", "Tesla P4"), "no datasheet peak of fp16", code=1)
    refused(run("resnet18", "--device", "RTX 3O90"), "expected a device", "GeForce RTX 3090")
    refused(run("resnet19", "--device", "Tesla T4"), "resnet1")
    refused(run(*ASKED, "--batch-size", 0), "--batch-size")


def test_a_card_whose_power_limit_binds_says_so(run):
    assert "power limit" in run("resnet18", "--device", "Tesla T4")[1]
    assert "power limit" not in run(*ASKED)[1]
