"""Definition, command, injected fault: `runners.project` in each mode and format; each mistake is one line."""

import csv
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.project import domain as domains
from analysis.project import frontier
from analysis.project.accelerator import Accelerator, ring_all_reduce_s
from analysis.project.domain import Formulas, shipped_formulas
from analysis.stats.intervals import answers
from reports import project_paper as project_figures
from runners import project as command
from tests.support.fakes.commands import refused, running, telling

ROOT = Path(__file__).parents[3]

TEN_LINES = """
model = "resnet18"
grows = "width"
sub_batch = 64
sizes = { image = 64, classes = 10 }
learning_curve = { alpha = 15.0, beta_g = [-0.3, -0.32, -0.28] }
model_size = { sigma = 20000.0, beta_p = 0.57 }
error = { target = 0.2, unit = "wrong" }
data = { unit = "image" }
"""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command.main(arguments) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = telling(command.main, capsys)(*arguments)
    return found


def test_a_domain_is_projected_as_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, "word_lm")
    rows = {row["quantity"]: row for row in csv.DictReader(io.StringIO(told(capsys, "word_lm", "--format", "csv")))}
    assert set(rows) == set(answer["projection"]) - {"bound"}
    assert float(rows["epoch_s"]["value"]) == answer["projection"]["epoch_s"]["value"]
    assert answer["projection"]["grown"]["value"] == answer["sizes"]["hidden"] == 38427
    assert answer["accelerators_for_memory"] == 7, "202 GB of footprint, 32 GB each"
    assert answer["laws"]["limits"]["gamma"] == pytest.approx(480.65, rel=1e-5)


def test_the_target_the_batch_and_the_accelerator_are_the_callers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("word_lm", "--target", "3", "--sub-batch", "64")
    near = document(capsys, *words)
    assert near["sub_batch"] == 64
    assert near["projection"]["data_scale"]["value"] == pytest.approx((3 / 3.37) ** (1 / -0.066))
    device = document(capsys, *words, "--device", "NVIDIA A100-SXM4-80GB", "--dtype", "bf16")
    assert device["target"]["peak_flop_per_s"] == 312e12
    assert device["projection"]["moved_bytes"]["value"] == near["projection"]["moved_bytes"]["value"] / 2
    assert device["target"]["memory_bytes"] == 80e9, "of the table of memories"
    assert device["accelerators_for_memory"] == -(-device["projection"]["footprint_bytes"]["value"] // 80e9)
    own = ("--peak-tflops", "100", "--bandwidth-gbs", "1e9", "--memory-gib", "1e6", "--compute-ratio", "0.5")
    mine = document(capsys, *words, *own)
    assert mine["projection"]["step_s"]["value"] == pytest.approx(near["projection"]["flop"]["value"] / 50e12)
    assert mine["target"]["memory_bytes"] == 1e6 * 2**30
    assert mine["accelerators_for_memory"] == 1


def test_bytes_without_what_onednns_lstm_keeps_are_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    """Its workspace has no known size: no total of bytes, and nothing that is divided by one."""
    words = ("word_lm", "--rules", "flopledger")
    projection = document(capsys, *words)["projection"]
    hanging = {name: each for name, each in projection.items() if name != "bound" and each["value"] is None}
    assert set(hanging) == {"moved_bytes", "intensity", "footprint_bytes", "step_s", "utilization_ratio", "epoch_s"}
    assert hanging["intensity"]["at_most"] > 0
    assert "at_least_moved_bytes," in told(capsys, *words, "--format", "csv")


def test_a_file_of_ten_lines_is_projected_without_shipped_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model once from its own operation tables and once from the shipped rows: as many parameters."""
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    with_rows = document(capsys, str(file))
    assert with_rows["rules"] == "catamount"
    monkeypatch.setattr("analysis.project.domain.shipped_formulas", lambda _rules: {})
    derived = document(capsys, str(file))
    assert derived["rules"] == "flopledger"
    ours, theirs = (each["projection"] for each in (derived, with_rows))
    assert ours["grown"]["value"] == theirs["grown"]["value"]
    assert ours["parameters"] == theirs["parameters"]
    assert ours["flop"]["value"] == pytest.approx(theirs["flop"]["value"], rel=0.05)
    for name in ("data", "parameters", "epoch_s"):
        assert ours[name]["low"] < ours[name]["value"] < ours[name]["high"]
    assert ours["data"]["low"] == pytest.approx((0.2 / 15) ** (1 / -0.32))
    assert ours["data_scale"] == {"value": None, "low": None, "high": None, "unit": ""}


def test_a_paper_is_reproduced_as_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    cells = document(capsys, "--reproduce", "ppopp2019")["cells"]
    keys = {"table", "row", "column", "paper", "ours", "deviation_ratio", "verdict", "assumption"}
    assert all(keys <= set(cell) for cell in cells)
    rows = list(csv.DictReader(io.StringIO(told(capsys, "--reproduce=ppopp2019", "--format", "csv"))))
    assert [row["verdict"] for row in rows] == [cell["verdict"] for cell in cells]
    empty = next(cell for cell in cells if cell["table"] == "Figure 8")
    assert (empty["paper"], empty["ours"], empty["deviation_ratio"]) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected a domain (word_lm, char_lm, nmt, speech, image) or a .toml file, got none"),
        (("word_lmm",), "unknown domain: expected word_lm,"),
        (("nowhere.toml",), "nowhere.toml could not be read"),
        (("word_lm", "--target", "0"), "expected a number above 0, got 0"),
        (("word_lm", "--device", "H9000"), "expected a device of the table of peaks"),
        (("word_lm", "--device", "Tesla K80", "--dtype", "bf16"), "expected fp64 or fp32, got 'bf16'"),
        (("word_lm", "--dtype", "bf16"), "expected --device or --peak-tflops"),
        (("word_lm", "--peak-tflops", "3"), "expected both --peak-tflops and --bandwidth-gbs"),
        (("word_lm", "--compute-ratio", "0"), "expected a share above 0"),
        (("word_lm", "--memory-gib", "0"), "expected a number above 0"),
        (("word_lm", "--memory-gib", "32"), "none, as not even one sample fits"),
        (("image", "--memory-gib", "24"), "(up to 26), got 32"),
        (("--reproduce", "ppop"), "expected ppopp2019, got 'ppop', nearest ppopp2019"),
        (("word_lm", "--fromat", "csv"), "unknown argument"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(running(command.main, capsys)(*arguments), words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[-0.3, -0.32, -0.28]", "-0.6", "mine.toml: beta_g: expected -0.5 to below 0, got -0.6"),
        ("0.57", "1.0", "mine.toml: beta_p: expected 0.5 to below 1, got 1"),
        ("[-0.3, -0.32, -0.28]", "-0.3, floor = 0.2", "mine.toml: error.target: expected more than 0.2"),
        ("resnet18", "resnet1888", "unknown model 'resnet1888'"),
        ('"width"', '"widht"', "nearest width"),
        ("sub_batch = 64", "sub_batch =", "expected TOML"),
        ("20000.0", "1e-9", "expected"),
    ],
)
def test_a_file_with_a_mistake_is_one_line(
    old: str, new: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    assert old in TEN_LINES
    file.write_text(TEN_LINES.replace(old, new))
    refused(running(command.main, capsys)(file), words)


@pytest.mark.parametrize("model", ["{folder}/evil.py:build", "evil:build"])
def test_code_that_a_file_names_runs_only_if_it_is_allowed(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\ndef build(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = model.format(folder=tmp_path)
    lines = TEN_LINES.splitlines()
    lines = [f'model = "{name}"' if line.startswith("model =") else line for line in lines]
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    run = running(command.main, capsys)
    words = f"mine.toml names code, which would run as you: {name}; read it, then add --allow-code"
    refused(run(tmp_path / "mine.toml"), words)
    assert not (tmp_path / "ran").exists()
    refused(run(tmp_path / "mine.toml", "--allow-code"), "takes no image_size")
    assert (tmp_path / "ran").exists()


def test_a_model_of_which_a_part_is_counted_is_not_projected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(
        not_understood={"their.product": 2}, totals={"model_flop": None, "all_flop": None}, point={}
    )
    monkeypatch.setattr("runners.formula_questions.answer", lambda _options: found)
    monkeypatch.setattr("analysis.project.domain.shipped_formulas", lambda _rules: {})
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    assert command.main([str(file)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].endswith("no rule counts their.product: a part of its FLOP is no projection")


def test_a_projection_needs_no_torch() -> None:
    code = (
        "import sys\nfrom runners import project as command\ncommand.main(['image'])\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)


def test_figures_are_drawn_for_a_domain_and_for_the_paper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Drawn without rendering: what each panel has."""
    from analysis.project import ppopp2019

    target = ppopp2019.target_of(ppopp2019.inputs())
    found: list[tuple[Any, Formulas]] = [
        (domain, shipped_formulas()[domain.model]) for domain in map(domains.shipped, domains.ORDER)
    ]
    growth = project_figures.growth(found, target)
    for axes in growth.axes[:4]:
        stars = [line for line in axes.lines if line.get_marker() == "*" and len(line.get_xdata())]
        assert len(stars) == len(found)
    (end,) = growth.axes[0].lines[2].get_ydata()
    assert end == pytest.approx(480.65 * 24.4e9, rel=0.02), "gamma · p of the word model at its target"
    batches = project_figures.sub_batch(*found[0], target, word_lm=True)
    assert [text.get_text() for text in batches.axes[0].texts][1:] == [
        "ridge: 81",
        "95 % of the limit: 164,476",
        "chosen: 128",
    ]
    days = project_figures.data_parallel(target).axes[0].lines[0]
    at = dict(zip(days.get_xdata(), days.get_ydata(), strict=True))
    assert (at[1024], at[512]) == pytest.approx((6.21, 11.16), rel=2e-3)


# --- by draws, and compute ---

A100 = ("--device", "NVIDIA A100-SXM4-80GB", "--dtype", "bf16")
TARGET = Accelerator("a", 1e13, 1e11)


def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    return str(file)


@pytest.mark.parametrize("name", ["word_lm", "image"])
def test_draws_are_the_projection_at_the_files_own_numbers(name: str) -> None:
    """And at others, as near as reading between sizes that are √2 apart is."""
    domain = domains.shipped(name)
    formulas = shipped_formulas()[domain.model]
    function = frontier.drawn(domain, formulas, TARGET)
    for share, near in ((1.0, 1e-9), (1.07, 3e-3), (0.9, 3e-3)):
        numbers = {**domain.values(), "error_target": share * domain.values()["error_target"]}
        exact = frontier.project(domain, formulas, TARGET, numbers)
        found = function({"error_target": np.asarray([numbers["error_target"]])})
        for quantity in ("data_scale", "data", "parameters", "steps"):
            assert found[quantity][0] == pytest.approx(exact[quantity])
        read = ("flop", "moved_bytes", "intensity", "footprint_bytes", "step_s", "epoch_s", "utilization_ratio")
        for quantity in read:
            assert found[quantity][0] == pytest.approx(exact[quantity], rel=near), (quantity, share)


def test_a_utilization_takes_the_place_of_both_shares(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "image", *A100, "--utilization", "0.2..0.4")
    used = found["time"]["reached"]["utilization"]
    assert (found["time"]["by"], found["projection"]["bound"]) == ("utilization", None)
    assert (used["low_ratio"], used["high_ratio"]) == pytest.approx((0.2, 0.4))
    model_flop = shipped_formulas()["resnet152"].value(
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


def test_devices_add_up_their_gradients_in_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    """2 · 7/8 of the gradients' bytes over 300 GB/s, of which 0.8 is reached, and 14 steps of 3.4 µs."""
    one, eight = document(capsys, "image", *A100, "--utilization", "0.2"), ("--utilization", "0.2", "--devices", "8")
    many = document(capsys, "image", *A100, *eight)
    model = shipped_formulas()["resnet152"].value("parameters", **many["sizes"])
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
def test_a_mistake_of_a_projection_by_draws_is_one_line(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(running(command.main, capsys)(*arguments), words)


ASKED = ("--compute", "--device", "NVIDIA A100-SXM4-80GB", "--precision", "amp-bf16")
USED = ("--utilization", "0.2..0.4")
H200 = ("--gpu-hours", "3", "--device", "NVIDIA H200")


def test_hours_times_peak_times_utilization(capsys: pytest.CaptureFixture[str]) -> None:
    """300 h × 3600 s × 312e12 FLOP/s × 0.25 = 8.424e19; an interval of the utilization is one of the compute."""
    exact = document(capsys, *ASKED, "--gpu-hours", "300", "--utilization", "0.25")["answers"]["flop"]
    assert exact == {name: pytest.approx(8.424e19) for name in ("value", "low", "high")}
    found = document(capsys, *ASKED, "--gpu-hours", "300", *USED)
    flop, used = found["answers"]["flop"], found["utilization"]
    assert (used["low_ratio"], used["high_ratio"]) == pytest.approx((0.2, 0.4))
    for end, ratio in (("value", "ratio"), ("low", "low_ratio"), ("high", "high_ratio")):
        assert flop[end] == pytest.approx(300 * 3600 * 312e12 * used[ratio], rel=0.01)
    assert found["peak_flop_per_s"] == 312e12


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
def test_a_mistake_of_compute_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    refused(running(command.main, capsys)("--compute", *arguments), words)


def test_draws_of_alpha_are_the_learning_curves_where_nobody_says_today() -> None:
    import tomllib

    domain = domains.from_tables(tomllib.loads(TEN_LINES), "mine")
    formulas = shipped_formulas()[domain.model]
    _, corners = frontier.spread(domain, formulas, TARGET)
    function = frontier.drawn(domain, formulas, TARGET)
    found = answers(function, frontier.domain_inputs(domain), 0.9)
    assert "data_scale" not in found
    assert found["data"].value == pytest.approx((0.2 / 15) ** (1 / -0.3))
    # 5 % of the draws of beta_g are beyond the tenth of the way from each end to the value
    assert found["data"].low == pytest.approx((0.2 / 15) ** (1 / -0.318), rel=1e-3)
    assert found["data"].high == pytest.approx((0.2 / 15) ** (1 / -0.282), rel=1e-3)
    assert corners["epoch_s"].low < found["epoch_s"].low < found["epoch_s"].high < corners["epoch_s"].high


def test_a_device_of_the_callers_needs_a_peak(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--compute", "--gpu-hours", "1", "--device", "Mine", *USED)
    refused(running(command.main, capsys)(*asked), "or give its --peak-tflops")
    found = document(capsys, *asked, "--peak-tflops", "1000")
    assert (found["device"], found["peak_flop_per_s"], found["peak_source"]) == ("Mine", 1e15, "given")
