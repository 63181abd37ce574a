"""`runners.project FILE` by draws: a measured utilization for the assumed shares, costs, and the interval of each."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.project.frontier import domain as frontier_domain
from analysis.project.frontier import frontier, monte_carlo
from analysis.project.frontier.accelerator import Accelerator
from analysis.project.frontier.data_parallel import ring_all_reduce_s
from analysis.project.frontier.monte_carlo import Training
from analysis.project.frontier.shipped_formulas import shipped
from analysis.stats.intervals import Ends, answers
from runners.project import command
from tests.runners.project.test_project_command import TEN_LINES, refused, told
from tests.runners.project.test_project_compute import run_of

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
    domain = frontier_domain.shipped(name)
    formulas = shipped()[domain.model]
    function = monte_carlo.projected(domain, formulas, TARGET, Training())
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

    domain = frontier_domain.from_tables(tomllib.loads(TEN_LINES), "mine")
    formulas = shipped()[domain.model]
    domain_box = frontier.spread(domain, formulas, TARGET)
    function = monte_carlo.projected(domain, formulas, TARGET, Training())
    found = answers(function, monte_carlo.domain_inputs(domain), 0.9)
    assert "data_scale" not in found
    assert found["data"].value == pytest.approx((0.2 / 15) ** (1 / -0.3))
    # 5 % of the draws of beta_g are beyond the tenth of the way from each end to the value
    assert found["data"].low == pytest.approx((0.2 / 15) ** (1 / -0.318), rel=1e-3)
    assert found["data"].high == pytest.approx((0.2 / 15) ** (1 / -0.282), rel=1e-3)
    assert domain_box.low["epoch_s"] < found["epoch_s"].low < found["epoch_s"].high < domain_box.high["epoch_s"]


def test_a_measured_utilization_takes_the_place_of_both_shares(capsys: pytest.CaptureFixture[str]) -> None:
    found, compute = (
        document(capsys, "image", *A100, "--measured"),
        ("--compute", "--gpu-hours", "1", "--family", "cnn"),
    )
    wanted = json.loads(told(capsys, *compute, *A100[:2], "--format", "json"))["utilization"]
    reached = found["time"]["reached"]
    assert reached["utilization"] == wanted, "that of --compute"
    assert (found["time"]["by"], reached["family"], found["projection"]["bound"]) == ("utilization", "cnn", None)
    model_flop = shipped()["resnet152"].at(
        "model_flop", width=found["sizes"]["width"], image=224, classes=1000, batch=32
    )
    step, other = found["projection"]["step_s"], {"value": "ratio", "low": "high_ratio", "high": "low_ratio"}
    for end, ratio in other.items():
        assert step[end] == pytest.approx(model_flop / (wanted[ratio] * 312e12), rel=2e-3), end
    hours = found["projection"]["gpu_hours"]
    assert hours["value"] == pytest.approx(found["projection"]["steps"]["value"] * step["value"] / 3600)
    assert hours["low"] < hours["value"] < hours["high"]
    by_roofline = document(capsys, "image", *A100)
    assert by_roofline["time"] is None
    assert found["time"]["roofline_step_s"] == by_roofline["projection"]["step_s"]["value"]
    assert not any("shares are assumptions" in note for note in found["notes"])


def test_a_run_of_the_callers_is_among_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `--compute --run` predicts it: its stack is one more, and the answer says so."""
    run = run_of(tmp_path / "mine", "NVIDIA H200", [("resnet50", "cuda", "0.31")])
    device = ("--device", "NVIDIA H200", "--run", str(run))
    found = document(capsys, "image", *device, "--dtype", "bf16")["time"]["reached"]
    compute = json.loads(told(capsys, "--compute", "--gpu-hours", "1", "--family", "cnn", *device, "--format", "json"))
    assert found["utilization"] == compute["utilization"]
    assert any(row["stack"] == "flopledger, mine" and row["ratio"] == 0.31 for row in found["runs"])


def test_what_it_costs_and_hangs_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.shared.figure_style.render", lambda _figure: {"png": b"p", "svg": b"s"})
    costs = ("--price", "2", "--watts", "400", "--pue", "1.5", "--intensity", "300..500", "--epochs", "3")
    words = (mine(tmp_path), *A100, "--utilization", "0.2..0.4", *costs, "--tornado", str(tmp_path / "t.png"))
    found = document(capsys, *words)
    told_ = {name: each["value"] for name, each in found["projection"].items() if name != "bound"}
    assert told_["gpu_hours"] == pytest.approx(3 * told_["epoch_s"] / 3600)
    assert told_["flop_trained"] == pytest.approx(3600 * told_["gpu_hours"] * 312e12 * told_["utilization_ratio"])
    assert told_["cost"] == pytest.approx(2 * told_["gpu_hours"])
    assert told_["energy_kwh"] == pytest.approx(0.4 * 1.5 * told_["gpu_hours"])
    assert told_["co2_kg"] == pytest.approx(told_["energy_kwh"] * np.sqrt(0.3 * 0.5))
    hangs = {name: [swing["input"] for swing in each] for name, each in found["time"]["hangs_on"].items()}
    assert hangs["co2_kg"] == ["beta_g", "utilization", "intensity"]
    assert hangs["gpu_hours"] == hangs["cost"] == ["beta_g", "utilization"]
    assert (tmp_path / "t.png").read_bytes() == b"p"
    rows = {row["quantity"]: row for row in csv.DictReader(io.StringIO(told(capsys, *words, "--format", "csv")))}
    assert float(rows["co2_kg"]["high"]) == found["projection"]["co2_kg"]["high"]
    text = told(capsys, *words)
    assert max(map(len, text.splitlines())) <= 100
    assert "95 % of draws of beta_g, utilization, intensity" in " ".join(text.split())


def test_costs_by_the_roofline_have_the_rooflines_time(capsys: pytest.CaptureFixture[str]) -> None:
    plain, priced = document(capsys, "word_lm"), document(capsys, "word_lm", "--price", "2")
    assert priced["time"]["by"] == "roofline"
    assert priced["projection"]["epoch_s"]["value"] == pytest.approx(plain["projection"]["epoch_s"]["value"])
    assert priced["projection"]["bound"] == plain["projection"]["bound"]
    assert priced["projection"]["cost"]["value"] == pytest.approx(2 * plain["projection"]["epoch_s"]["value"] / 3600)


def test_devices_add_up_their_gradients_in_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    """2 · 7/8 of the gradients' bytes over 300 GB/s, of which 0.8 is reached, and 14 steps of 3.4 µs."""
    one, eight = document(capsys, "image", *A100, "--utilization", "0.2"), ("--utilization", "0.2", "--devices", "8")
    many = document(capsys, "image", *A100, *eight)
    model = shipped()["resnet152"].at("parameters", **many["sizes"])
    value = {name: each["value"] for name, each in many["projection"].items() if name != "bound"}
    alone = {name: each["value"] for name, each in one["projection"].items() if name != "bound"}
    assert value["reduce_s"] == pytest.approx(ring_all_reduce_s(2 * model, 8, 0.8 * 300e9) + 14 * 3.4e-6)
    assert value["step_s"] == pytest.approx(alone["step_s"] + value["reduce_s"])
    assert value["steps"] == pytest.approx(alone["steps"] / 8)
    assert value["gpu_hours"] == pytest.approx(8 * value["epoch_s"] / 3600)
    assert value["flop_trained"] == pytest.approx(alone["flop_trained"])
    assert value["utilization_ratio"] == pytest.approx(0.2 * alone["step_s"] / value["step_s"])
    assert many["time"]["link"] == "NVLink 3 at 0.8 of the rate"
    slow = document(capsys, "image", *A100, *eight, "--node", "1", "--between", "Ethernet 100", "--link-ratio", "1")
    assert slow["projection"]["reduce_s"]["value"] == pytest.approx(
        ring_all_reduce_s(2 * model, 8, 12.5e9) + 14 * 9.6e-6
    )
    assert slow["time"]["link"] == "Ethernet 100 at 1 of the rate"
    more = document(capsys, "image", *A100, "--utilization", "0.2", "--devices", "16")["time"]
    assert more["link"] == "NVLink 3 in nodes of 8 and InfiniBand HDR between them at 0.8 of the rate"


def test_the_runs_of_a_utilization_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "published runs" in (text := told(capsys, "image", *A100, "--measured", "--rows"))
    assert "stack\n" in text
    assert "draws of utilization. Training" in " ".join(text.split()), "and of nothing in the file"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("word_lm", "--measured"), "--measured: no published run of a model such as wordlm is known here"),
        (("image", *A100, "--measured", "--compute-ratio", "0.5"), "--compute-ratio: expected without --measured"),
        (("image", *A100, "--family", "cnm"), "unknown family: expected cnn"),
        (("image", "--device", "NVIDIA H200", "--dtype", "fp8", "--measured"), "--utilization: expected with fp8"),
        (("image", *A100, "--utilization", "1.5"), "--utilization: expected less than 1"),
        (("image", *A100, "--run", "nowhere"), "--run: expected the directory of a reported run"),
        (("image", *A100, "--intensity", "300"), "--intensity: expected --watts with it"),
        (("image", *A100, "--rows"), "--rows: expected --measured with it"),
        (("image", *A100, "--tornado", "t.pdf"), "--tornado: expected a file ending in .png or .svg"),
        (("image", *A100, "--epochs", "0"), "0"),
        (("image", "--devices", "8"), "--within: expected a link (NVLink 2, "),
        (("image", *A100, "--devices", "12"), "--devices: expected a multiple of 8, the devices of a --node, got 12"),
        (("image", *A100, "--devices", "8", "--within", "NVLink"), "--within: unknown link"),
        (("image", *A100, "--node", "4"), "--node: expected --devices of 2 or more with it"),
        (
            ("image", *A100, "--target", "0.19", "--devices", "800000"),
            "--devices: expected a batch of at most all data",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, *arguments)


def test_a_tornado_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["word_lm", "--tornado", str(tmp_path / "t.png")])
    assert "--tornado: expected an answer with an interval" in capsys.readouterr().err
