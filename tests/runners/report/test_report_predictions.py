"""Definition, injected fault: `report RUN --predictions FILE` decides which predicted step times of a run held."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import runners.report as report_command
from reports.sweep.predictions import KEY, TIMES
from runners import rebuild
from tests.support.fakes.commands import refused, running
from tests.support.made_up import run_fixture
from tests.support.made_up.run_fixture import EXACT_FLOP, H100, step_s

HOLDS, FAILS, BOUNDED, RESIZED = (
    ("resnet18", 8, "fp32"),
    ("resnet18", 64, "amp-bf16"),
    ("mobilenet_v2", 8, "fp32"),
    ("mobilenet_v2", 64, "fp32"),
)
NOT_FITTED = "no published step in fp32 was fitted"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_fixture.write_run(tmp_path_factory.mktemp("raw") / "run")


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "_pictures", lambda out: {})
    monkeypatch.setattr(rebuild, "_page", lambda *given: b"a page")


def predicted(cell: tuple[str, int, str], low: float | None, high: float | None, bound: float) -> dict[str, Any]:
    """A row of predictions, its times in steps as the run measured them, with the 90 % interval."""
    model, batch_size, precision = cell
    times = {"low_90_s": low, "high_90_s": high}
    times |= {"step_time_s": low and high and (low + high) / 2, "bound_time_s": bound}
    identity = (H100, model, batch_size, precision, "channels_first", "false")
    return {
        **dict(zip(KEY, identity, strict=True)),
        "model_flop": EXACT_FLOP[model] * batch_size,
        "reason": "" if low else NOT_FITTED,
        **{name: value and value * step_s(*cell) for name, value in times.items()},
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        predicted(HOLDS, 0.95, 1.5, bound=0.5),
        predicted(FAILS, 1.5, 3.0, bound=0.5),
        predicted(BOUNDED, None, None, bound=1.25),  # faster than can be
        {**predicted(RESIZED, 0.5, 2.0, bound=0.5), "model_flop": EXACT_FLOP["mobilenet_v2"]},
        {**predicted(HOLDS, 0.5, 2.0, bound=0.5), "model": "vgg16"},  # not measured
    ]
    return write(tmp_path / "predictions.csv", rows)


def test_one_holds_and_one_does_not(run: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(run), "--predictions", str(file), "--out", str(tmp_path / "out")]
    assert report_command.main([*arguments, "--format", "json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    rows = {(row["model"], row["batch_size"], row["precision"]): row for row in cells}
    assert set(rows) == {HOLDS, FAILS, BOUNDED, RESIZED}
    answers = {cell: [row[name] for name in ("held_90", "is_above_bound")] for cell, row in rows.items()}
    assert answers == {
        HOLDS: [True, True],
        FAILS: [False, True],
        BOUNDED: [None, False],
        RESIZED: [None, None],
    }
    assert all(row["measured_time_s"] == pytest.approx(step_s(*cell)) for cell, row in rows.items())

    assert report_command.main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("within the 90 % interval: 1 of 2\nnot under the least time: 2 of 3\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: {name: value for name, value in row.items() if name != "bound_time_s"}, "expected a table with"),
        (lambda row: {name: value for name, value in row.items() if not name.startswith("low_")}, "expected a table"),
        (lambda row: {**row, TIMES[0]: "many"}, "predictions.csv: could not convert string to float: 'many'"),
        (lambda row: {**row, "device": "NVIDIA H200"}, "expected a run of its cells on NVIDIA H200, got none of them"),
    ],
)
def test_a_file_of_something_else_is_one_line(
    change: Any, said: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "predictions.csv", [change(predicted(HOLDS, 0.9, 1.1, bound=0.5))])
    refused(running(report_command.main, capsys)(run, "--predictions", file, "--out", tmp_path / "out"), said)
