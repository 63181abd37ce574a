"""`runners.project FILE` by draws: a utilization for the assumed shares, many devices, and the interval of each.

`runners.project --compute` from end to end: GPU-hours into FLOP and back, an interval, mistakes in one line.
"""

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
from runners.project import command
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


ASKED = ("--compute", "--device", "NVIDIA A100-SXM4-80GB", "--precision", "amp-bf16")
USED = ("--utilization", "0.2..0.4")
H200 = ("--gpu-hours", "3", "--device", "NVIDIA H200")


def compute_told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert command.main([*arguments, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def compute_refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as fault:
        command.main(list(arguments))
    assert fault.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_hours_times_peak_times_utilization(capsys: pytest.CaptureFixture[str]) -> None:
    """300 h × 3600 s × 312e12 FLOP/s × 0.25 = 8.424e19; an interval of the utilization is one of the compute."""
    exact = compute_told(capsys, *ASKED, "--gpu-hours", "300", "--utilization", "0.25")["answers"]["flop"]
    assert exact == {name: pytest.approx(8.424e19) for name in ("value", "low", "high")}
    found = compute_told(capsys, *ASKED, "--gpu-hours", "300", *USED)
    flop, used = found["answers"]["flop"], found["utilization"]
    assert (used["low_ratio"], used["high_ratio"]) == pytest.approx((0.2, 0.4))
    for end, ratio in (("value", "ratio"), ("low", "low_ratio"), ("high", "high_ratio")):
        assert flop[end] == pytest.approx(300 * 3600 * 312e12 * used[ratio], rel=0.01)
    assert found["peak_flop_per_s"] == 312e12


def test_the_inverse_gives_the_hours_back(capsys: pytest.CaptureFixture[str]) -> None:
    flop = compute_told(capsys, *ASKED, "--gpu-hours", "300", *USED)["answers"]["flop"]["value"]
    back = compute_told(capsys, *ASKED, "--flop", repr(flop), *USED)
    assert back["answer"] == "gpu_hours"
    assert back["answers"]["gpu_hours"]["value"] == pytest.approx(300)
    assert back["answers"]["flop"]["low"] == flop == back["answers"]["flop"]["high"]


def test_confidence_is_that_of_the_callers_ends(capsys: pytest.CaptureFixture[str]) -> None:
    for confidence in ("0.95", "0.5"):
        flop = compute_told(capsys, *ASKED, "--gpu-hours", "1", *USED, "--confidence", confidence)["answers"]["flop"]
        assert (flop["low"], flop["high"]) == pytest.approx((3600 * 312e12 * 0.2, 3600 * 312e12 * 0.4), rel=0.01)


def test_csv_and_table_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*ASKED, "--gpu-hours", "300", *USED, "--format", "csv"]) == 0
    rows = {row["quantity"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert float(rows["gpu_hours"]["value"]) == 300
    assert command.main([*ASKED, "--gpu-hours", "300", *USED]) == 0
    table = capsys.readouterr().out
    assert f"{float(rows['flop']['value']):.2e}".replace("e+", "e") in table
    assert max(map(len, table.splitlines())) <= 110


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu-hours", "3", "--device", "A100", *USED), "several devices are called 'A100'"),
        (("--gpu-hours", "3", "--device", "Tesla T4", *USED), "no bf16 peak: expected fp32 or amp-fp16"),
        (("--gpu-hours", "-3", "--device", "NVIDIA H200", *USED), "a number above 0, from 1e-09 to 1e+60, got '-3'"),
        (("--gpu-hours", "1e400", "--device", "NVIDIA H200", *USED), "a number above 0"),
        (("--flop", "nan", "--device", "NVIDIA H200", *USED), "a number above 0"),
        (H200, "the following arguments are required: --utilization"),
        (("--device", "NVIDIA H200", *USED), "one of the arguments --gpu-hours --flop is required"),
        ((*H200, "--utilization", "0.3..1.2"), "expected less than 1 on bf16 units"),
        ((*H200, "--utilization", "1.5"), "expected less than 1 on bf16 units"),
        ((*H200, "--utilization", "0.4..0.3"), "LOW..HIGH with LOW first"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    assert words in compute_refused(capsys, "--compute", *arguments)


def test_ieee_units_may_go_beyond_their_peak(capsys: pytest.CaptureFixture[str]) -> None:
    found = compute_told(capsys, "--compute", *H200, "--precision", "fp32", "--utilization", "0.8..1.25")["utilization"]
    assert (found["ratio"], found["scale"]) == (pytest.approx(1), "log")


def test_a_device_of_the_callers_needs_a_peak(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--compute", "--gpu-hours", "1", "--device", "Mine", *USED)
    assert "or give its --peak-tflops" in compute_refused(capsys, *asked)
    found = compute_told(capsys, *asked, "--peak-tflops", "1000")
    assert (found["device"], found["peak_flop_per_s"], found["peak_source"]) == ("Mine", 1e15, "given")
