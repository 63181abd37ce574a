"""`runners.atlas`: an import of made-up tables with real small models, a model's rows, the page."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

from analysis.atlas import (
    against_roofline,
    deepbench_bounds,
    explained,
    kept_deepbench,
    kept_kernels,
    published_steps,
    summary,
)
from analysis.atlas.published_step import PublishedStep
from analysis.devices import lookup
from analysis.predict import amounts, evaluation
from analysis.predict.operation_amounts import Amounts
from analysis.reach import step_bound
from reports.atlas import utilization_by_intensity
from reports.atlas.markdown import source_link
from reports.atlas.text import to_text
from runners.atlas import command, importing, kept_amounts
from runners.atlas.costs import CostKey, read_cost, read_operations
from runners.atlas.importing import built_models
from runners.footprint.step import StepOptions
from runners.reach import SMALL, cost_at
from tests.support.fakes.commands import refused, running

timm = pytest.importorskip("timm", reason="timm is not installed")

TRAIN = "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
HEAD = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count"
SIZE = 64


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A table of four rows: a model, one whose parameters disagree, one that there is not, one that cannot be."""
    folder = tmp_path_factory.mktemp("atlas")
    parameters = sum(p.numel() for p in timm.create_model("resnet18").parameters()) / 1e6
    rows = (
        f"resnet18,3200,10.0,32,{SIZE},{parameters:.2f}",
        f"resnet18,3200,10.0,32,{SIZE},{parameters + 1:.2f}",
        "resnet18_of_nobody,1,1,1,64,1",
        "resnet18,1,0,32,64,1",
    )
    (folder / "sources").mkdir()
    (folder / "sources" / TRAIN).write_text("\n".join([HEAD, *rows]) + "\n")
    arguments = ["import", "--from", folder / "sources", "--costs", folder / "costs", "--out", folder / "t.csv.gz"]
    assert command.main([str(each) for each in (*arguments, "--processes", 1)]) == 0
    return folder


def test_each_row_has_its_cost_or_the_reason(imported):
    ok, other, none, invalid = published_steps(imported / "t.csv.gz")
    assert [row.status for row in (ok, other, none, invalid)] == ["ok", "other_model", "no_model", "invalid"]
    assert "12.69 M parameters were published; timm:resnet18 has 11.69 M" in other.reason
    cost = cost_at(StepOptions("timm:resnet18", "amp-bf16", hyper={"image_size": SIZE}), 32)
    assert ok.model_flop == cost.model_flop
    device = lookup("NVIDIA GeForce RTX 3090")
    assert ok.utilization_ratio == pytest.approx(cost.model_flop / 71e12 / 0.010, rel=1e-5)
    bound = step_bound(cost, device.peaks, device.bandwidth_bytes_per_s)
    assert ok.bound_time_s == pytest.approx(bound.bound_time_s, rel=1e-5)
    assert ok.achieved_over_bound_ratio == pytest.approx(bound.bound_time_s / 0.010, rel=1e-5)
    assert ok.family == "resnet"


def test_what_is_counted_is_kept_and_a_cut_file_is_counted_again(imported):
    key = CostKey("timm:resnet18", SIZE, "train")
    path = imported / "costs" / key.file
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    assert read_cost(key, imported / "costs") is None
    path.write_bytes(before)
    assert read_cost(key, imported / "costs").cost is not None


def test_renamed_models_are_those_of_timm():
    found = built_models(["resnet18", "gluon_resnet18_v1b", "nobody"])
    assert found["gluon_resnet18_v1b"].name == found["resnet18"].name == "timm:resnet18"
    assert found["nobody"].name == ""


def test_rows_of_a_model_as_text_csv_and_json(imported, monkeypatch, capsys):
    rows = published_steps(imported / "t.csv.gz")
    monkeypatch.setattr("analysis.atlas.published_steps", lambda: rows)
    run = running(command.main, capsys)
    found = json.loads(run("timm:resnet18", "--format", "json")[1])
    assert found[0]["utilization_ratio"] == rows[0].utilization_ratio
    table = list(csv.DictReader(io.StringIO(run("resnet18", "--format", "csv")[1])))
    assert float(table[0]["utilization_ratio"]) == rows[0].utilization_ratio
    text = run("resnet18")[1]
    assert max(map(len, text.splitlines())) <= 100
    assert "Measured by others on NVIDIA GeForce RTX 3090, amp-fp16." in text
    assert "these are its relatives" in run("resnet50")[1]
    refused(run("vgg16"), "nothing was published of 'vgg16'", code=1)
    refused(run("resnet18", "--device", "RTX 3O90"), "expected a device", "GeForce RTX 3090")


def test_a_wheel_leaves_the_table_out_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "TABLE", tmp_path / "published_steps.csv.gz")
    for asked in ("resnet18", "page"):
        refused(running(command.main, capsys)(asked), "expected the table of published steps")


def test_a_folder_without_tables_is_refused(tmp_path, capsys):
    run = running(command.main, capsys)
    refused(run("import"), "expected --from")
    refused(run("import", "--from", tmp_path), "expected tables such as")
    (tmp_path / TRAIN).write_text("model\nx\n")
    refused(run("import", "--from", tmp_path), "train_batch_size")


# --- the table that is kept ---


def test_no_published_step_is_faster_than_its_bound():
    """The bound is a least time: whatever beats it is a fault of bound, count, peak or source, or a named rule."""
    rows = [row for row in published_steps() if row.achieved_over_bound_ratio is not None]
    assert len(rows) > 20_000
    faster = [row for row in rows if row.achieved_over_bound_ratio > 1]
    assert [(row.model, row.file, row.row) for row in faster if explained(row) is None] == []
    rules = Counter(explained(row).name for row in faster)
    assert rules["cache"] <= 1
    assert rules["clock"] <= 10
    within = [row for row in rows if row.achieved_over_bound_ratio <= 1]
    assert [row.row for row in within if not 0 < row.utilization_ratio <= row.attainable_ratio] == []


def test_a_rule_explains_only_what_its_data_show():
    (row,) = [each for each in published_steps() if explained(each) and explained(each).name == "cache"]
    for change in ({"achieved_over_bound_ratio": 1.03}, {"attainable_ratio": 0.5}, {"compiled": False},
                   {"device": "NVIDIA GeForce RTX 3090"}):  # fmt: skip
        assert explained(replace(row, **change)) is None, change
    row = next(each for each in published_steps() if explained(each) and explained(each).name == "clock")
    for change in ({"achieved_over_bound_ratio": 1.05}, {"attainable_ratio": 0.7}, {"device": "NVIDIA A100-SXM4-80GB"}):
        assert explained(replace(row, **change)) is None, change
    assert explained(replace(row, achieved_over_bound_ratio=1.0)) is None


@pytest.mark.parametrize("model", ["resnet50", "vgg19", "mobilenetv2_100", "vit_base_patch16_224"])
def test_kept_costs_are_those_of_today(model):
    """One row of each is counted again: a changed count, peak or fusion rule shows."""
    row = next(row for row in published_steps() if row.model == model and row.achieved_over_bound_ratio is not None)
    asked = StepOptions(row.counted_model, "amp-bf16", hyper={"image_size": row.image_size})
    cost = cost_at(asked, row.batch_size, row.mode)
    assert row.model_flop == cost.model_flop
    device = lookup(row.device)
    peaks = {**device.peaks, "bf16": device.peaks["fp16"]}
    assert row.bound_time_s == pytest.approx(
        step_bound(cost, peaks, device.bandwidth_bytes_per_s).bound_time_s, rel=1e-5
    )


def test_the_page_is_current():
    from reports.atlas import page

    table = summary.frame(published_steps())
    assert command.PAGE_FILE.read_text() == page(
        table, against_roofline(kept_kernels()), deepbench_bounds(kept_deepbench())
    )


def test_rates_are_flop_a_second_of_rows_that_have_both():
    rows = [("a", 2e9, 1.0), ("a", 4e9, 1.0), ("b", 9e9, 1.0), ("b", 9e9, None), ("b", None, 1.0)]
    table = pd.DataFrame(rows, columns=["counted_model", "model_flop", "step_time_s"]).assign(device="cpu")
    (found,) = summary.rates(table, ("device",)).to_dict("records")
    assert (found["rows"], found["models"]) == (3, 2)
    assert [found[name] for name in ("low", "median", "high", "best")] == [3e9, 4e9, 6.5e9, 9e9]


def test_cpus_are_apart():
    table = summary.frame(published_steps())
    cpus = table[table["processor"] == summary.CPU]
    assert set(cpus["device"]) == {"Intel(R) Core(TM) i9-10940X CPU", "12th Gen Intel(R) Core(TM) i7-12700H"}
    assert cpus["utilization_ratio"].isna().all()


def test_flop_per_byte_is_of_the_unfused_step(monkeypatch):
    """A step of two classes: (5 + 2 × 32) + (1 + 0 × 32) bytes for its FLOP; none where amounts are not kept."""
    row = next(row for row in published_steps() if row.counted_model == "timm:resnet50" and row.mode == "train")
    row = replace(row, batch_size=32, compiled=False, model_flop=1400)
    step = {"eager": {"x": Amounts(1, (0, 0), (5, 2)), "y": Amounts(1, (0, 0), (1, 0))}}
    monkeypatch.setattr("analysis.predict.kept_amounts", lambda: {evaluation.key_of(row): step})
    other = replace(row, counted_model="timm:nobody")
    found = command._with_intensity([row, replace(row, compiled=True), other])["flop_per_byte"]
    assert found[0] == 20
    assert found[1:].isna().all()


@pytest.mark.parametrize("bend", [20.0, 80.0])
def test_the_roofline_of_the_figure_bends_at_the_devices_flop_per_byte(bend):
    table = pd.DataFrame({"flop_per_byte": [10.0, 200.0], "utilization_ratio": [0.05, 0.5], "mode": ["train", "infer"]})
    x, y = utilization_by_intensity(table, bend, "").axes[0].lines[-1].get_data()
    assert y[x < bend] == pytest.approx(100 * x[x < bend] / bend)
    assert set(y[x > bend]) == {100.0}


def test_a_row_of_the_table_has_its_batch_or_a_dash() -> None:
    row = PublishedStep(source="s", commit="c", file="f", row=1, model="net", mode="train", precision="fp32",
                        layout="channels_first", framework="", device="d", batch_size=192)  # fmt: skip
    assert "192" in to_text([row])
    assert "192" not in to_text([replace(row, batch_size=None)])


def test_a_derived_number_keeps_six_digits():
    assert [importing.rounded(number) for number in (2 / 3, 1234567.8, 0.0)] == [0.666667, 1234570.0, 0.0]


def test_amounts_are_kept_of_one_cost_and_one_version_of_the_rules(imported, monkeypatch):
    key, folder = CostKey("timm:resnet18", SIZE, "train"), imported / "costs"
    assert kept_amounts.are_kept(key, folder)
    low, high = read_operations(key, folder)
    assert kept_amounts.read(key, folder) == amounts(low, SMALL[0], high, SMALL[1])
    with monkeypatch.context() as patch:
        patch.setattr(kept_amounts, "_rules", lambda: b"other rules")
        assert not kept_amounts.are_kept(key, folder)
        assert kept_amounts.read(key, folder) is None
    path = folder / f"{key.file}{kept_amounts.ENDING}"
    before = path.read_text()
    path.write_text(before[: len(before) // 2])
    assert not kept_amounts.are_kept(key, folder)
    kept_amounts.keep(key, folder)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("row", "link"),
    [
        ({"source": "timm", "commit": "abc", "file": "t.csv", "row": 3},
         "[t.csv, row 3](https://github.com/huggingface/pytorch-image-models/blob/abc/results/t.csv#L4)"),
        ({"source": "Lambda", "commit": "abc", "file": "pytorch_pytorch-train.csv", "row": 3},
         "[pytorch_pytorch-train.csv, row 3](https://github.com/lambdal/deeplearning-benchmark/blob/abc/pytorch/pytorch-train.csv)"),
        ({"source": "NVIDIA examples", "commit": "abc", "file": "a/b/README.md", "row": 3},
         "[README.md, row 3](https://github.com/NVIDIA/DeepLearningExamples/blob/abc/a/b/README.md)"),
        ({"source": "timm", "commit": "", "file": "t.csv", "row": 3}, "t.csv, row 3"),  # its commit was not recorded
    ],
)  # fmt: skip
def test_a_row_is_linked_to_its_line_at_its_commit(row, link):
    assert source_link(row) == link
