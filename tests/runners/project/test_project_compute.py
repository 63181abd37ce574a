"""`runners.project --compute` from end to end: GPU-hours into FLOP and back, an interval, mistakes in one line."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from runners.project import command

ASKED = ("--compute", "--device", "NVIDIA A100-SXM4-80GB", "--precision", "amp-bf16")
USED = ("--utilization", "0.2..0.4")
H200 = ("--gpu-hours", "3", "--device", "NVIDIA H200")


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


def test_hours_times_peak_times_utilization(capsys: pytest.CaptureFixture[str]) -> None:
    """300 h × 3600 s × 312e12 FLOP/s × 0.25 = 8.424e19; an interval of the utilization is one of the compute."""
    exact = told(capsys, *ASKED, "--gpu-hours", "300", "--utilization", "0.25")["answers"]["flop"]
    assert exact == {name: pytest.approx(8.424e19) for name in ("value", "low", "high")}
    found = told(capsys, *ASKED, "--gpu-hours", "300", *USED)
    flop, used = found["answers"]["flop"], found["utilization"]
    assert (used["low_ratio"], used["high_ratio"]) == pytest.approx((0.2, 0.4))
    for end, ratio in (("value", "ratio"), ("low", "low_ratio"), ("high", "high_ratio")):
        assert flop[end] == pytest.approx(300 * 3600 * 312e12 * used[ratio], rel=0.01)
    assert found["peak_flop_per_s"] == 312e12


def test_the_inverse_gives_the_hours_back(capsys: pytest.CaptureFixture[str]) -> None:
    flop = told(capsys, *ASKED, "--gpu-hours", "300", *USED)["answers"]["flop"]["value"]
    back = told(capsys, *ASKED, "--flop", repr(flop), *USED)
    assert back["answer"] == "gpu_hours"
    assert back["answers"]["gpu_hours"]["value"] == pytest.approx(300)
    assert back["answers"]["flop"]["low"] == flop == back["answers"]["flop"]["high"]


def test_confidence_is_that_of_the_callers_ends(capsys: pytest.CaptureFixture[str]) -> None:
    for confidence in ("0.95", "0.5"):
        flop = told(capsys, *ASKED, "--gpu-hours", "1", *USED, "--confidence", confidence)["answers"]["flop"]
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
    assert words in refused(capsys, "--compute", *arguments)


def test_ieee_units_may_go_beyond_their_peak(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--compute", *H200, "--precision", "fp32", "--utilization", "0.8..1.25")["utilization"]
    assert (found["ratio"], found["scale"]) == (pytest.approx(1), "log")


def test_a_device_of_the_callers_needs_a_peak(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--compute", "--gpu-hours", "1", "--device", "Mine", *USED)
    assert "or give its --peak-tflops" in refused(capsys, *asked)
    found = told(capsys, *asked, "--peak-tflops", "1000")
    assert (found["device"], found["peak_flop_per_s"], found["peak_source"]) == ("Mine", 1e15, "given")
