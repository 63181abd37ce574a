"""`runners.project FILE` by draws: a utilization for the assumed shares, many devices, and the interval of each."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.project import domain as domains
from analysis.project import frontier, monte_carlo
from analysis.project.accelerator import Accelerator, ring_all_reduce_s
from analysis.project.domain import shipped_formulas
from analysis.stats.intervals import Ends, answers
from tests.runners.project.test_project_command import TEN_LINES, refused, told

A100 = ("--device", "NVIDIA A100-SXM4-80GB", "--dtype", "bf16")
TARGET = Accelerator("a", 1e13, 1e11)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, *arguments, "--format", "json"))
    return found


def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    return str(file)


def test_the_ends_of_a_number_are_never_left_and_its_value_is_in_the_middle() -> None:
    ends = Ends(3.0, 1.0, 9.0)
    assert ends.at(np.asarray([0.0, 0.25, 0.5, 0.75, 1.0])).tolist() == [1.0, 2.0, 3.0, 6.0, 9.0]
    assert ends.median == 3.0
    assert Ends(3.0, 3.0, 9.0).at(np.asarray([0.25, 0.75])).tolist() == [3.0, 6.0]


@pytest.mark.parametrize("name", ["word_lm", "image"])
def test_draws_are_the_projection_at_the_files_own_numbers(name: str) -> None:
    """And at others, as near as reading between sizes that are √2 apart is."""
    domain = domains.shipped(name)
    formulas = shipped_formulas()[domain.model]
    function = monte_carlo.projected(domain, formulas, TARGET)
    for share, near in ((1.0, 1e-9), (1.07, 3e-3), (0.9, 3e-3)):
        numbers = {**domain.values(), "error_target": share * domain.values()["error_target"]}
        exact = frontier.project(domain, formulas, TARGET, numbers)
        found = function({"error_target": np.asarray([numbers["error_target"]])})
        for quantity in ("data_scale", "data", "parameters", "steps"):
            assert found[quantity][0] == pytest.approx(getattr(exact, quantity))
        read = ("flop", "moved_bytes", "intensity", "footprint_bytes", "step_s", "epoch_s", "utilization_ratio")
        for quantity in read:
            assert found[quantity][0] == pytest.approx(getattr(exact, quantity), rel=near), (quantity, share)


def test_draws_of_alpha_are_the_learning_curves_where_nobody_says_today() -> None:
    import tomllib

    domain = domains.from_tables(tomllib.loads(TEN_LINES), "mine")
    formulas = shipped_formulas()[domain.model]
    domain_box = frontier.spread(domain, formulas, TARGET)
    function = monte_carlo.projected(domain, formulas, TARGET)
    found = answers(function, monte_carlo.domain_inputs(domain), 0.9)
    assert "data_scale" not in found
    assert found["data"].value == pytest.approx((0.2 / 15) ** (1 / -0.3))
    # 5 % of the draws of beta_g are beyond the tenth of the way from each end to the value
    assert found["data"].low == pytest.approx((0.2 / 15) ** (1 / -0.318), rel=1e-3)
    assert found["data"].high == pytest.approx((0.2 / 15) ** (1 / -0.282), rel=1e-3)
    assert domain_box.low["epoch_s"] < found["epoch_s"].low < found["epoch_s"].high < domain_box.high["epoch_s"]


def test_a_utilization_takes_the_place_of_both_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "image", *A100, "--utilization", "0.2..0.4")
    used = found["time"]["reached"]["utilization"]
    assert (found["time"]["by"], found["projection"]["bound"]) == ("utilization", None)
    assert (used["low_ratio"], used["high_ratio"]) == pytest.approx((0.2, 0.4))
    model_flop = shipped_formulas()["resnet152"].at(
        "model_flop", width=found["sizes"]["width"], image=224, classes=1000, batch=32
    )
    step, other = found["projection"]["step_s"], {"value": "ratio", "low": "high_ratio", "high": "low_ratio"}
    for end, ratio in other.items():
        assert step[end] == pytest.approx(model_flop / (used[ratio] * 312e12), rel=2e-3), end
    value = {name: each["value"] for name, each in found["projection"].items() if name != "bound"}
    assert value["gpu_hours"] == pytest.approx(value["steps"] * value["step_s"] / 3600)
    assert value["flop_trained"] == pytest.approx(3600 * value["gpu_hours"] * 312e12 * value["utilization_ratio"])
    by_roofline = document(capsys, "image", *A100)
    assert by_roofline["time"] is None
    assert found["time"]["roofline_step_s"] == by_roofline["projection"]["step_s"]["value"]
    assert not any("shares are assumptions" in note for note in found["notes"])
    words = (mine(tmp_path), *A100, "--utilization", "0.2..0.4")
    rows = {row["quantity"]: row for row in csv.DictReader(io.StringIO(told(capsys, *words, "--format", "csv")))}
    assert float(rows["gpu_hours"]["high"]) == document(capsys, *words)["projection"]["gpu_hours"]["high"]
    text = told(capsys, *words)
    assert max(map(len, text.splitlines())) <= 100
    assert "95 % of draws of beta_g, utilization, independent of each other" in " ".join(text.split())
    assert "draws of utilization. Training" in " ".join(told(capsys, "image", *words[1:]).split()), "and of no number"


def test_devices_add_up_their_gradients_in_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    """2 · 7/8 of the gradients' bytes over 300 GB/s, of which 0.8 is reached, and 14 steps of 3.4 µs."""
    one, eight = document(capsys, "image", *A100, "--utilization", "0.2"), ("--utilization", "0.2", "--devices", "8")
    many = document(capsys, "image", *A100, *eight)
    model = shipped_formulas()["resnet152"].at("parameters", **many["sizes"])
    value = {name: each["value"] for name, each in many["projection"].items() if name != "bound"}
    alone = {name: each["value"] for name, each in one["projection"].items() if name != "bound"}
    assert value["reduce_s"] == pytest.approx(ring_all_reduce_s(2 * model, 8, 0.8 * 300e9) + 14 * 3.4e-6)
    assert value["step_s"] == pytest.approx(alone["step_s"] + value["reduce_s"])
    assert value["steps"] == pytest.approx(alone["steps"] / 8)
    assert value["gpu_hours"] == pytest.approx(8 * value["epoch_s"] / 3600)
    assert value["flop_trained"] == pytest.approx(alone["flop_trained"])
    assert value["utilization_ratio"] == pytest.approx(0.2 * alone["step_s"] / value["step_s"])
    assert many["time"]["link"] == "NVLink 3 at 0.8 of the rate"
    slow = document(capsys, "image", *A100, *eight, "--node", "1")
    assert slow["projection"]["reduce_s"]["value"] == pytest.approx(
        ring_all_reduce_s(2 * model, 8, 0.8 * 25e9) + 14 * 9.6e-6
    )
    assert slow["time"]["link"] == "InfiniBand HDR at 0.8 of the rate"
    more = document(capsys, "image", *A100, "--utilization", "0.2", "--devices", "16")["time"]
    assert more["link"] == "NVLink 3 in nodes of 8 and InfiniBand HDR between them at 0.8 of the rate"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("image", *A100, "--utilization", "0.3", "--compute-ratio", "0.5"),
            "--compute-ratio: expected without --utilization",
        ),
        (("image", *A100, "--utilization", "1.5"), "--utilization: expected less than 1"),
        (("image", "--devices", "8"), "--devices: expected --device with it"),
        (("image", *A100, "--devices", "12"), "--devices: expected a multiple of 8, the devices of a --node, got 12"),
        (
            ("image", "--device", "A100", "--devices", "8"),
            "several devices are called 'A100': NVIDIA A100-PCIE-40GB (bf16",
        ),
        (("image", *A100, "--node", "4"), "--node: expected --devices of 2 or more with it"),
        (
            ("image", *A100, "--target", "0.19", "--devices", "800000"),
            "--devices: expected a batch of at most all data",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, *arguments)
