"""`runners.report RUN --atlas`: a run of a real step, in multiples of its predicted time."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.atlas import on_device, published_steps
from analysis.atlas.placement import peers_of
from analysis.devices import lookup
from results.records import MEASURED, Cell, Run, Sample, Sitting
from results.store.manifest import Manifest
from results.store.store import Store
from runners.footprint.step import StepOptions, trace_batch
from runners.predict import command as predict_command
from runners.report import command as report_command
from runners.report.placed import not_by_name
from tests.support.fakes.commands import refused, running
from tests.support.made_up.made_up_runs import Unsynced
from tests.support.made_up.run_fixture import write_run

PUBLISHED = Path(__file__).parents[3] / "results/published/amd-epyc-2-cores-2026-11-29"
CARD, SIZE, BATCH = "NVIDIA GeForce RTX 3090", 224, 64
TIMES = {0: 1.0, 1: 10.0, 2: 0.01}
"""Repeat → measured ÷ predicted time: as predicted, far slower, faster than the least time."""


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    """What `runners.predict` says of the step."""
    out = tmp_path_factory.mktemp("predicted") / "p.json"
    words = ["resnet18", "--device", CARD, "--image-size", SIZE, "--batch-size", BATCH, "--num-classes", 10]
    assert predict_command.main([*map(str, words), "--format", "json", "--out", str(out)]) == 0
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory, predicted):
    return write(tmp_path_factory.mktemp("placed") / "run", predicted["step_time_s"], f"Stand-in of {CARD}")


def write(path, step_s, device_name):
    """A run of resnet18 whose operations are those of a real step."""
    hyper = {"image_size": SIZE, "num_classes": 10}
    traced = trace_batch(StepOptions("resnet18", "amp-fp16", hyper=hyper), BATCH)
    with Store.create(path, Manifest(name="placed", created_at="2026-01-02T03:04:05Z"), Unsynced()) as store:
        store.append_sitting(
            Sitting(
                sitting="s1", started_at="2026-01-02T03:04:05Z", host="host", device="cuda", device_name=device_name
            )
        )
        store.write_operations("t", traced.operations, traced.storages)
        for repeat, times in TIMES.items():
            cell = Cell(model="resnet18", batch_size=BATCH, device="cuda", precision="amp-fp16", repeat=repeat, **hyper)
            row = Run(
                **{name: getattr(cell, name) for name in cell.to_row()}, cell_id=cell.cell_id, attempt=1, sitting="s1",
                status=MEASURED[0], trace_id="t", items_per_step=BATCH, convolution_unit="fp16", matmul_unit="fp16",
            )  # fmt: skip
            store.commit(row, {"samples.csv": blocks(cell.cell_id, step_s * times)})
    return path


def blocks(cell_id, step_s):
    """Ten blocks of ten steps, ± 0.1 %, whose mean is step_s."""
    return [
        Sample(
            cell_id=cell_id, attempt=1, index=i, part="measure", steps=10, start_s=100.0 * i,
            wall_s=10 * step_s, device_s=10 * step_s * (1.001 if i % 2 else 0.999),
        )
        for i in range(10)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def placed(run):
    """What the command prints as JSON, and its cells by repeat."""
    return answer_of(run)


def answer_of(path):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert report_command.main([str(path), "--atlas", "--format", "json"]) == 0
    found = json.loads(said.getvalue())
    return found, {cell["repeat"]: cell for cell in found["cells"]}


@pytest.mark.parametrize("repeat", TIMES)
def test_the_time_over_the_prediction_is_the_planted_ratio(placed, predicted, repeat):
    cell = placed[1][repeat]
    assert cell["over_predicted_ratio"] == pytest.approx(TIMES[repeat], rel=1e-6)
    assert cell["predicted_time_s"] == pytest.approx(predicted["step_time_s"])
    assert cell["inside_interval"] == (TIMES[repeat] == 1)
    assert cell["achieved_over_bound_ratio"] == pytest.approx(
        predicted["bound_time_s"] / predicted["step_time_s"] / TIMES[repeat], rel=1e-6
    )


def test_the_percentile_is_among_rows_of_the_family_on_the_device(placed, predicted):
    cells = placed[1]
    flop_per_s = 71e12  # the sheet of an RTX 3090 in fp16 with fp32 accumulation
    assert lookup(CARD).peaks["fp16"] == flop_per_s
    assert (cells[0]["family"], cells[0]["rows_of"]) == ("resnet", "this device")
    rows = peers_of(on_device(published_steps(), CARD), "resnet", "train", "amp-fp16")
    for repeat, times in TIMES.items():
        used = predicted["model_flop"] / flop_per_s / (predicted["step_time_s"] * times)
        below = sum(row.utilization_ratio < used for row in rows)
        assert cells[repeat]["percentile"] == pytest.approx(100 * below / len(rows))
        assert cells[repeat]["rows"] == len(rows)


def test_surprises_are_named_first_and_a_stand_in_is_marked(run, placed, capsys):
    found = placed[0]
    assert [words["surprise"].split(":")[0].split(",")[0] for words in found["surprises"]] == [
        "slower than predicted", "percentile 0.0 of the utilization of resnet", "faster than its least time",
        "faster than predicted",
    ]  # fmt: skip
    code, out, _ = running(report_command.main, capsys)(run, "--atlas")
    first, *others = out.splitlines()
    assert code == 0
    assert first == "3 of 3 cells compared with steps that others published; 2 of them outside of what was expected."
    assert others[0].startswith("  * resnet18†, batch 64, amp-fp16")
    assert "stand-in device, which computes nothing" in " ".join(out.split())


def test_table_and_page_have_the_same(run, placed):
    with (run / "atlas.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["over_predicted_ratio"]) for row in rows] == pytest.approx(list(TIMES.values()), rel=1e-6)
    page = (run / "report.html").read_text()
    assert "Among published steps" in page
    assert "slower than predicted" in page


def test_a_step_with_other_flop_has_neither_prediction_nor_bound(tmp_path):
    """The made-up run's resnet18 is two convolutions; its percentile stands."""
    cells = answer_of(write_run(tmp_path / "r", CARD))[0]["cells"]
    (cell,) = [c for c in cells if (c["model"], c["batch_size"], c["precision"]) == ("resnet18", 64, "amp-bf16")]
    assert "model FLOP, the cell's 94,334,214,144" in cell["no_prediction"]
    assert (cell["predicted_time_s"], cell["bound_time_s"]) == (None, None)
    assert cell["percentile"] is not None


def test_a_published_run_of_a_cpu_is_refused_with_the_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report_command, "_pictures", lambda out: {})
    copy = shutil.copytree(PUBLISHED, tmp_path / "run")
    code, out, _ = running(report_command.main, capsys)(copy, "--atlas")
    text = " ".join(out.split())
    assert code == 0
    assert "None of 4 cells can be compared with published steps." in text
    assert "refused: all 4 cells: measured on a CPU" in text


@pytest.mark.parametrize(
    "other",
    [
        {"model": "evil.py:net"},
        {"model": "os.path:join"},
        {"batch_maker": "evil.py:batch"},
        {"model_digest": "abc"},
    ],
)
def test_code_that_a_run_names_is_not_run(other):
    row = Run(model="resnet18", batch_size=1, device="cuda", cell_id="c", attempt=1, sitting="s1", status="ok")
    assert not_by_name(row) == ""
    assert "is not run for a report" in not_by_name(replace(row, **other))


@pytest.mark.parametrize("words", [("--check",), ("--convention", "post2021"), ("other",)])
def test_atlas_is_of_one_run_that_is_rebuilt(run, words, capsys):
    refused(running(report_command.main, capsys)(run, *words, "--atlas"), "--atlas: expected one run")
