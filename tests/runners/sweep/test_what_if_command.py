"""`--what-if`: what a change's worker answers becomes a table, CSV or JSON; mistakes are one line."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from results import StoreFault
from results.records import CHANGE_NAMES, ChangeTrial
from runners.sweep import options as sweep_options
from runners.sweep import what_if
from runners.sweep.plan import Cell
from runners.workers import WorkerFault
from tests.support.fakes import real_sweeps

CELL = Cell(model="synthetic_matmul", batch_size=8, precision="fp32", device="cpu")
OF_CELL: dict[str, Any] = {"model": CELL.model, "batch_size": 8, "precision": "fp32", "device": "cpu"}


def row(change: str, ratio: float, **more: Any) -> ChangeTrial:
    known = {
        "status": "ok",
        "low": 0.9 * ratio,
        "high": 1.1 * ratio,
        "memory_bytes": 12_000_000,
        "step_time_s": 0.01 / ratio,
    }
    return ChangeTrial(change=change, ratio=ratio, rounds=10, **{**known, **OF_CELL, **more})


class PlantedWorker:
    """Answers as it is told, by change."""

    answers: dict[str, Any]

    def __init__(self, *_name: str, **_options: Any) -> None:
        pass

    def call(self, _task: str, _cell: Cell, change: str, _quick: bool, timeout_s: float) -> Any:
        answer = self.answers[change]
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, WorkerFault):
            return answer
        return [row("none", 1.0, low=None, high=None, step_time_s=0.01), answer]

    def stop(self) -> None:
        pass


ANSWERS = {
    "bf16": row("bf16", 0.5),
    "batch_size": row("batch_size=16", 1.25),
    "compile": row("compile", 1.02, status="not_converged", reason="interval of ±9.00%, 3.00% asked for"),
    "tf32": WorkerFault("unavailable", "TF32 is of CUDA devices, this step runs on cpu"),
}


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.workers.Worker", PlantedWorker)
    monkeypatch.setattr(PlantedWorker, "answers", ANSWERS, raising=False)


def ran(form: str, changes: str = "tf32,bf16,compile,batch_size") -> int:
    options = sweep_options.parser().parse_args(["--what-if", changes, "--format", form])
    return what_if.run([CELL], options)


def test_the_table_is_ranked(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("table") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "synthetic_matmul · batch 8 · fp32 · cpu"
    assert [line.split()[0] for line in lines[3:7]] == ["batch_size=16", "compile", "none", "bf16"]
    assert [line.split("  ")[-1].strip() for line in lines[3:7]] == [
        "faster", "not distinguished, wide", "as it is", "slower",
    ]  # fmt: skip
    assert lines[7] == "tf32: unavailable: TF32 is of CUDA devices, this step runs on cpu"


def test_json_and_csv_hold_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    ran("json")
    found = json.loads(capsys.readouterr().out)
    assert [each["change"] for each in found] == ["batch_size=16", "compile", "none", "bf16", "tf32"]
    assert {"change", "ratio", "low", "high", "memory_bytes"} <= set(found[0])
    assert found[-1]["ratio"] is None
    ran("csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [each["change"] for each in rows] == [each["change"] for each in found]
    assert [each["ratio"] for each in rows] == ["1.25", "1.02", "1.0", "0.5", ""]


def test_a_change_that_crashes_is_a_row_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {**ANSWERS, "compile": WorkerFault("crashed", "RuntimeError: planted")}
    monkeypatch.setattr(PlantedWorker, "answers", answers)
    assert ran("table") == 1
    assert "compile: crashed: RuntimeError: planted" in capsys.readouterr().out


def test_ctrl_c_shows_what_was_tried(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(PlantedWorker, "answers", {**ANSWERS, "compile": KeyboardInterrupt()})
    assert ran("json", "bf16,compile,batch_size") == 130
    shown = capsys.readouterr()
    assert [each["change"] for each in json.loads(shown.out)] == ["none", "bf16"]
    assert "stopped" in shown.err


def test_a_full_output_is_not_nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(StoreFault, match=r"could not be written: No space left on device; --what-if keeps nothing"):
            ran("json")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--what-if", "chanels_last"), "got 'chanels_last', nearest channels_last"),
        (("--what-if", "batch_size=many"), "expected a whole number of at least 1, got 'many'"),
        (("--what-if", "bf16", "--out", "mine"), "--out: not with --what-if"),
        (("--what-if", "bf16", "--retry-failed"), "not with --what-if"),
        (("--what-if", "bf16", "--retry-ceilings"), "not with --what-if"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    given: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from runners.sweep.command import main

    with pytest.raises(SystemExit) as end:
        main(given)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_without_names_every_change_is_tried() -> None:
    assert sweep_options.parser().parse_args(["--what-if"]).what_if == CHANGE_NAMES
    assert sweep_options.parser().parse_args(["--what-if", "all"]).what_if == CHANGE_NAMES


@pytest.mark.survival
def test_a_real_sweep_tries_changes_in_workers(tmp_path: Any) -> None:
    asked = (*real_sweeps.QUICK, "--models", "synthetic_matmul", "--what-if", "batch_size=16,tf32,workers")
    done = real_sweeps.sweep(*asked, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {each["change"]: each for each in json.loads(done.stdout)}
    assert set(found) == {"none", "batch_size=16", "tf32", "workers"}
    assert found["batch_size=16"]["low"] <= found["batch_size=16"]["ratio"] <= found["batch_size=16"]["high"]
    assert found["none"]["memory_bytes"] > 0
    assert found["workers"]["reason"].endswith("there is no loader")
    assert not list(tmp_path.iterdir())
