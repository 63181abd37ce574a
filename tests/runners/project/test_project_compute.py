"""`runners.project --compute` from end to end: the issue's own question, its inverse, costs, our own runs, mistakes."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runners.predict import command as predict_command
from runners.project import command
from runners.project.machine import own_runs

ROOT = Path(__file__).parents[3]

ASKED = ("--compute", "--device", "NVIDIA A100-SXM4-80GB", "--precision", "amp-bf16", "--family", "cnn")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert command.main([*arguments, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as fault:
        command.main(list(arguments))
    assert fault.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_the_issues_question(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *ASKED, "--gpu-hours", "300")
    flop, used = found["answers"]["flop"], found["utilization"]
    assert found["peak_flop_per_s"] == 312e12
    assert flop["value"] == pytest.approx(300 * 3600 * 312e12 * used["ratio"])
    assert flop["low"] == pytest.approx(300 * 3600 * 312e12 * used["low_ratio"], rel=0.01)
    assert flop["high"] == pytest.approx(300 * 3600 * 312e12 * used["high_ratio"], rel=0.01)
    assert (used["group"], used["fallback"], used["runs"], used["stacks"]) == ("cnn under half on 8.0", None, 10, 6)
    assert len(found["runs"]) == used["runs"]
    assert found["rule_of_thumb_ratio"] == 0.4  # Epoch AI, 2022: 0.3 for language models, 0.4 for others
    assert all(0.1 < row["ratio"] < 0.3 and row["source"] for row in found["runs"])
    assert [swing["input"] for swing in found["hangs_on"]["flop"]] == ["utilization"]
    assert found["own_runs_left_out"] == {}


def test_the_inverse_gives_the_hours_back(capsys: pytest.CaptureFixture[str]) -> None:
    flop = told(capsys, *ASKED, "--gpu-hours", "300")["answers"]["flop"]["value"]
    back = told(capsys, *ASKED, "--flop", repr(flop))
    assert back["answer"] == "gpu_hours"
    assert back["answers"]["gpu_hours"]["value"] == pytest.approx(300)


def test_costs_multiply_and_their_intervals_add_up_in_logarithms(capsys: pytest.CaptureFixture[str]) -> None:
    """100 h × 2..8 an hour; 100 h × 500 W × 1.2 ÷ 1000 = 60 kWh; × 100..400 g ÷ 1000 = 12 kg at √(100 · 400)."""
    found = told(
        capsys, *ASKED, "--gpu-hours", "100", "--utilization", "0.5",
        "--price", "2..8", "--watts", "500", "--pue", "1.2", "--intensity", "100..400",
    )["answers"]  # fmt: skip
    assert found["flop"] == {name: pytest.approx(100 * 3600 * 312e12 * 0.5) for name in ("value", "low", "high")}
    assert found["cost"]["value"] == pytest.approx(400)
    assert (found["cost"]["low"], found["cost"]["high"]) == (pytest.approx(200, rel=0.01), pytest.approx(800, rel=0.01))
    assert found["energy_kwh"]["value"] == pytest.approx(60)
    assert found["co2_kg"]["value"] == pytest.approx(12)
    assert found["co2_kg"]["low"] == pytest.approx(6, rel=0.01)


def test_unknown_hours_widen_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *ASKED, "--flop", "1e20", "--utilization", "0.2..0.3", "--price", "2..4")
    # logit-normal against lognormal: by their logarithms, about ±0.2 and ±0.35, together ±0.4
    cost, hours = found["answers"]["cost"], found["answers"]["gpu_hours"]
    assert cost["high"] / cost["value"] == pytest.approx(
        math.exp(math.hypot(math.log(math.sqrt(2)), math.log(hours["high"] / hours["value"]))), rel=0.03
    )
    assert [swing["input"] for swing in found["hangs_on"]["cost"]] == ["price", "utilization"]
    assert found["given"]["price"] == {
        "value": pytest.approx(math.sqrt(8)),
        "low": pytest.approx(2),
        "high": pytest.approx(4),
    }


def test_confidence_narrows(capsys: pytest.CaptureFixture[str]) -> None:
    wide, narrow = (
        told(capsys, *ASKED, "--gpu-hours", "1", "--confidence", c)["answers"]["flop"] for c in ("0.95", "0.5")
    )
    assert wide["low"] < narrow["low"] < narrow["value"] == wide["value"] < narrow["high"] < wide["high"]


def test_csv_and_table_say_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main([*ASKED, "--gpu-hours", "300", "--format", "csv", "--out", str(tmp_path / "a" / "b.csv")]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "a" / "b.csv").read_text(encoding="utf-8") == text
    rows = {row["quantity"]: row for row in csv.DictReader(io.StringIO(text))}
    assert float(rows["gpu_hours"]["value"]) == 300
    assert command.main([*ASKED, "--gpu-hours", "300", "--rows"]) == 0
    table = capsys.readouterr().out
    assert f"{float(rows['flop']['value']):.2e}".replace("e+", "e") in table
    assert "MLPerf, MXNet" in table
    assert max(map(len, table.splitlines())) <= 110


def run_of(path: Path, device: str, rows: list[tuple[str, str, str]]) -> Path:
    """A reported run with one row a (model, device, ratio): 1e12 FLOP in a second at a peak that gives this ratio."""
    cells = [{"model": m, "device": d, "utilization_ratio": r} for m, d, r in rows]
    others = [{"method": "theory"}, {"denominator": "clock"}]
    return write_run(path, device, [*cells, *({**each, "utilization_ratio": "0.9"} for each in others)])


def write_run(path: Path, device: str, cells: list[dict[str, str]]) -> Path:
    """A reported run with a row for each of these, which have what differs from a converged cell of resnet50."""
    path.mkdir()
    (path / "sittings.csv").write_text(f"sitting,device_name\ns0,{device}\n", encoding="utf-8")
    own = {
        "model": "resnet50", "device": "cuda", "precision": "amp-bf16", "method": "exact", "denominator": "datasheet",
        "status": "ok", "utilization_ratio": "", "model_flop": "1000000000000", "time_s": "1.0", "batch_size": "64",
        "variant": "",
    }  # fmt: skip
    with (path / "utilization.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*own, "peak_flop_per_s"])
        writer.writeheader()
        for cell in cells:
            ratio = cell.get("utilization_ratio", "")
            peak = repr(1e12 / float(ratio)) if ratio and float(ratio) else ""
            writer.writerow({**own, "peak_flop_per_s": peak, **cell})
    return path


def test_a_run_of_the_callers_is_taken_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [("resnet50", "cuda", "0.5"), ("vgg16", "cuda", "0.6"), ("lstm", "cuda", "0.1"), ("resnet18", "cuda", "")]
    mine = run_of(tmp_path / "mine", "NVIDIA A100-SXM4-80GB", rows)
    plain = told(capsys, *ASKED, "--gpu-hours", "1")["utilization"]
    found = told(capsys, *ASKED, "--gpu-hours", "1", "--run", str(mine))
    assert found["utilization"]["runs"] == plain["runs"] + 2
    assert found["utilization"]["stacks"] == plain["stacks"] + 1
    assert found["utilization"]["ratio"] > plain["ratio"]
    assert {row["kind"] for row in found["runs"] if row["ratio"] > 0.4} == {"ours"}
    assert found["own_runs_left_out"]["of a model of no family here"] == 1
    assert found["own_runs_left_out"]["without a fraction of a datasheet's peak"] == 1


WRONG = "with a fraction that its unit cannot have"
OTHER = "with a fraction that is not its own FLOP ÷ (time × peak)"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ({"utilization_ratio": "nan"}, WRONG),
        ({"utilization_ratio": "inf"}, WRONG),
        ({"utilization_ratio": "0"}, WRONG),
        ({"utilization_ratio": "-0.3"}, WRONG),
        ({"utilization_ratio": "1.7"}, WRONG),  # on tensor units nothing is above its peak
        ({"utilization_ratio": "0.9", "peak_flop_per_s": "2e12"}, OTHER),  # 1e12 FLOP in 1 s are 0.5 of it
        ({"utilization_ratio": "0.5", "time_s": "0.0"}, OTHER),
        ({"utilization_ratio": "0.5", "model_flop": "many"}, OTHER),
        ({"utilization_ratio": "0.5", "status": "not_converged"}, "of a cell that did not converge"),
    ],
)
def test_a_fraction_that_cannot_be_is_no_observation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cell: dict[str, str], why: str
) -> None:
    mine = write_run(tmp_path / "mine", "NVIDIA A100-SXM4-80GB", [cell])
    plain = told(capsys, *ASKED, "--gpu-hours", "1")
    found = told(capsys, *ASKED, "--gpu-hours", "1", "--run", str(mine))
    assert found["own_runs_left_out"][why] == 1
    assert found["answers"] == plain["answers"]


def test_ieee_units_may_be_faster_than_their_peak_in_a_run(tmp_path: Path) -> None:
    """Winograd's algorithm saves multiplications on vector units, so that 1.2 of an fp32 peak is no mistake."""
    mine = write_run(tmp_path / "mine", "NVIDIA H200", [{"precision": "fp32", "utilization_ratio": "1.2"}])
    assert 1.2 in [each.ratio for each in own_runs([mine])[0]]


def test_a_table_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = write_run(tmp_path / "mine", "NVIDIA H200", [{"utilization_ratio": "0.5", "batch_size": "many"}])
    assert "expected the tables of a run" in refused(capsys, *ASKED, "--gpu-hours", "1", "--run", str(mine))


STEP = ("--compute", "--device", "NVIDIA GeForce RTX 3090", "--precision", "amp-fp16", "--gpu-hours", "10")


def test_a_model_has_the_utilization_of_its_predicted_step(capsys: pytest.CaptureFixture[str]) -> None:
    """The ends are those that `runners.predict` says of the same step."""
    words = ("resnet18", "--device", "NVIDIA GeForce RTX 3090", "--image-size", "64", "--batch-size", "256")
    assert predict_command.main([*words, "--format", "json"]) == 0
    step = json.loads(capsys.readouterr().out)
    asked = ("--model", "resnet18", "--image-size", "64", "--batch-size", "256", "--confidence", "0.9")
    assert command.main([*STEP, *asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    used = found["utilization"]
    assert used["low_ratio"] == pytest.approx(step["low_utilization_ratio"], rel=1e-6)
    assert used["high_ratio"] == pytest.approx(step["high_utilization_ratio"], rel=1e-6)
    assert used["low_ratio"] < step["utilization_ratio"] < used["high_ratio"]
    assert not used["given"]
    assert "one training step of resnet18, batch 256, predicted from" in used["step"]
    flop = found["answers"]["flop"]
    assert flop["value"] == pytest.approx(10 * 3600 * step["peak_flop_per_s"] * used["ratio"])
    assert command.main([*STEP, *asked]) == 0
    assert "utilization: of one training step of resnet18" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (("--family", "cnn"), "without --family"),
        (("--utilization", "0.3"), "without --family, --utilization"),
        (("--peak", "1e14"), "expected a device of the table of peaks"),
        (("--compile",), "no one published"),
    ],
)
def test_a_step_that_cannot_be_predicted_is_one_line(
    capsys: pytest.CaptureFixture[str], others: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, *STEP, "--model", "resnet18", "--image-size", "32", *others)


def test_a_family_with_too_few_runs_needs_some_of_the_callers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ("--compute", "--gpu-hours", "1", "--device", "NVIDIA H200", "--family", "vision-transformer")
    assert "2 published runs of 1 stack (0.579 to 0.582), too few for an interval" in refused(capsys, *asked)
    for name, ratio in (("a", "0.3"), ("b", "0.4")):
        run_of(tmp_path / name, "NVIDIA H200", [("vit_b_16", "cuda", ratio)])
    runs = [word for name in ("a", "b") for word in ("--run", str(tmp_path / name))]
    used = told(capsys, *asked, *runs)["utilization"]
    assert "too few stacks to know" in used["fallback"]
    assert 0.3 < used["ratio"] < 0.58


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu-hours", "3", "--device", "A100", "--family", "cnn"), "nearest: NVIDIA A100-SXM4-80GB"),
        (("--gpu-hours", "3", "--device", "Tesla T4", "--family", "cnn"), "no bf16 peak: expected fp32 or amp-fp16"),
        (
            ("--gpu-hours", "-3", "--device", "NVIDIA H200", "--family", "cnn"),
            "a number above 0, from 1e-09 to 1e+60, got '-3'",
        ),
        (("--gpu-hours", "1e400", "--device", "NVIDIA H200", "--family", "cnn"), "a number above 0"),
        (("--flop", "nan", "--device", "NVIDIA H200", "--family", "cnn"), "a number above 0"),
        (
            ("--gpu-hours", "3", "--device", "NVIDIA H200", "--family", "cn"),
            "language-model or vision-transformer, got",
        ),
        (("--gpu-hours", "3", "--device", "NVIDIA H200"), "--family: expected cnn, depthwise-cnn, language-model"),
        (("--device", "NVIDIA H200", "--family", "cnn"), "one of the arguments --gpu-hours --flop is required"),
        (
            ("--gpu-hours", "3", "--device", "NVIDIA H200", "--utilization", "0.3..1.2"),
            "expected less than 1 on bf16 units",
        ),
        (("--gpu-hours", "3", "--device", "NVIDIA H200", "--utilization", "1.5"), "expected less than 1 on bf16 units"),
        (("--gpu-hours", "3", "--device", "NVIDIA H200", "--utilization", "0.4..0.3"), "LOW..HIGH with LOW first"),
        (
            ("--gpu-hours", "3", "--device", "NVIDIA H200", "--family", "cnn", "--pue", "1.1"),
            "expected --watts with it",
        ),
        (
            ("--gpu-hours", "3", "--device", "NVIDIA H200", "--family", "cnn", "--watts", "9", "--pue", "0.9"),
            "--pue: expected 1 or more, got 0.9",
        ),
        (("--gpu-hours", "3", "--device", "NVIDIA H200", "--family", "cnn", "--run", "/nope"), "a reported run"),
        (("--gpu-hours", "3", "--device", "NVIDIA H200", "--family", "cnn", "--tornado", "x.pdf"), ".png or .svg"),
        (
            ("--gpu-hours", "3", "--device", "NVIDIA H200", "--utilization", "0.4", "--tornado", "nothing.png"),
            "--tornado: expected an answer with an interval",
        ),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...],
    words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert words in refused(capsys, "--compute", *arguments)
    assert not list(tmp_path.iterdir())


def test_ieee_units_may_go_beyond_their_peak(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--compute", "--gpu-hours", "1", "--device", "NVIDIA H200", "--precision", "fp32", "--family")
    answer = told(capsys, *asked, "language-model", "--utilization", "0.8..1.25")
    found = answer["utilization"]
    assert answer["rule_of_thumb_ratio"] == 0.3
    assert (found["ratio"], found["scale"]) == (pytest.approx(1), "log")


def test_a_device_of_the_callers_needs_a_peak(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--compute", "--gpu-hours", "1", "--device", "Mine", "--family", "cnn")
    assert "or give its --peak in FLOP/s" in refused(capsys, *asked)
    found = told(capsys, *asked, "--peak", "1e15")
    assert (found["device"], found["peak_flop_per_s"], found["peak_source"]) == ("Mine", 1e15, "given")
    assert "no published run" in found["utilization"]["fallback"]


def test_a_picture_is_drawn_or_said_not_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = [*ASKED, "--flop", "1e21", "--price", "2..4"]
    assert command.main([*asked, "--tornado", str(tmp_path / "t.png")]) == 0
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert command.main([*asked, "--tornado", "/proc/nowhere/t.png"]) == 3
    assert "could not be written" in capsys.readouterr().err
    assert "got the directory" in refused(capsys, *asked, "--out", str(tmp_path))


def test_help_and_answers_need_no_torch() -> None:
    script = """
import contextlib, io, sys
from runners.project import command as project
for words in (["--compute", "--help"], ["--budget=x", "--help"], ["--parallel", "--help"]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        project.main(words)
assert not {"numpy", "scipy", "torch"} & set(sys.modules), sorted({"numpy", "scipy", "torch"} & set(sys.modules))
with contextlib.redirect_stdout(io.StringIO()):
    project.main(["--compute", "--gpu-hours", "1", "--device", "NVIDIA H200", "--family", "cnn"])
assert not {"torch", "matplotlib", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
