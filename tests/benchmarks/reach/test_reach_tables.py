"""Definition, known answer: `benchmarks.reach` reads published rows, finds planted factors and keeps its coverage."""

import gzip
import math

import numpy as np
import pandas as pd
import pytest

from analysis.footprint.largest_batch import SMALL_BATCHES
from analysis.reach.bound import step_cost
from analysis.reach.published import published_rows
from analysis.reach.step_time import ARITHMETIC, LAUNCHES, MEMORY, Terms
from benchmarks.reach import counting, evaluation, fitting
from benchmarks.reach.counting import BatchCost, StepKey, count
from benchmarks.reach.sources import read_sources
from results.errors import Inconsistent
from runners.reach import operations_of
from runners.workers.traced_step import StepOptions, trace_batch

TIMM = """model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count
resnet18,3481.78,146.713,512,224,11.69
resnet19,3481.78,146.713,512,224,11.69
resnet18,3481.78,,512,224,11.69
"""
LAMBDA = "name_gpu,num_gpu,watt,price,ssd,resnet50\nQuadro RTX 8000,1,260,6037.5,{}\n2x A100 80GB PCIe,2,1,1,{}\n"
SECTION = "P / Inference performance: NVIDIA T4 / Mixed Precision Inference Latency"
NVIDIA = f"""path,section,columns,cells
PyTorch/Classification/ConvNets/resnet50v1.5/README.md,{SECTION},Batch Size | Throughput Avg,8 | "1,000 img/s"
"""


def test_rows_of_the_sources_files(tmp_path):
    files = {
        "timm/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv.gz": gzip.compress(TIMM.encode()),
        "timm/benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x.csv": b"model\n",
        "lambda/pytorch-train-throughput-fp16.csv": LAMBDA.format("182,651", "0,1200").encode(),
        "lambda/pytorch-train-bs-fp16.csv": LAMBDA.format("256,928", "256,2560").encode(),
        "lambda/pytorch-train-throughput-v2-fp16.csv": b",ssd,resnet50\npytorch_8xH100_80GB_SXM5_v2,1,16000\n",
        "dlexamples/tables.csv": NVIDIA.replace('"1,000 img/s"', "1000 img/s").encode(),
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    rows = {(row["source"], row["file"].partition("-")[2], row["row"]): row for row in read_sources(tmp_path)}
    assert len(rows) == 6
    timm = next(row for row in rows.values() if row["source"] == "timm" and row["row"] == 1)
    kept = published_rows().query("file == @timm['file'] and model == 'resnet18'").iloc[0]
    names = ("commit", "mode", "precision", "layout", "framework", "compiled", "device", "batch_size", "step_time_s")
    assert [timm[name] for name in names] == [kept[name] for name in names]
    first, second, without = (row for row in rows.values() if row["source"] == "Lambda")
    assert (first["device"], first["batch_size"], first["step_time_s"]) == ("Quadro RTX 8000", 928, 928 / 651)
    assert (second["device"], second["batch_size"], second["row"]) == ("NVIDIA A100 80GB PCIe", 1280, 4)
    assert (without["device"], without["items_per_s"], without["batch_size"]) == ("NVIDIA H100 80GB HBM3", 2000, None)
    (nvidia,) = (row for row in rows.values() if row["source"] == "NVIDIA examples")
    assert (nvidia["device"], nvidia["precision"], nvidia["step_time_s"]) == ("Tesla T4", "amp-fp16", 8 / 1000)


def test_a_row_is_counted_as_it_is_kept():
    rows = published_rows().query("model == 'resnet18' and mode == 'infer' and image_size == 160")
    asked = [{**row, "source": row["source_name"], "published_parameters": 11.69e6} for row in rows.to_dict("records")]
    assert {row["precision"] for row in asked} == {"amp-fp16", "amp-bf16", "bf16"}
    other = {**asked[0], "published_parameters": 11.9e6}
    *answers, refusal = count(StepKey("timm:resnet18", 160, "infer"), [*asked, other])[0]
    assert refusal == "another model, by its parameters"
    for answer, row in zip(answers, asked, strict=True):
        kept = {name: row[name] if row[name] == row[name] else None for name in answer}
        assert answer == pytest.approx(kept), row["file"]
    assert counting.built_models(["resnet18", "no_such_model"]) == {
        "resnet18": ("timm:resnet18", "resnet"), "no_such_model": ("", ""),
    }  # fmt: skip


def test_the_cost_at_any_batch_is_that_of_a_trace_there():
    asked = StepOptions("resnet18", "amp-bf16", hyper={"image_size": 64})
    low, high, traced = (step_cost(operations_of(asked, trace_batch(asked, batch))) for batch in (*SMALL_BATCHES, 16))
    found = BatchCost(low, high).at(16)
    assert found.model_flop == traced.model_flop
    assert (found.group_flop == traced.group_flop).all()
    assert (found.group_bytes == traced.group_bytes).all()
    with pytest.raises(Inconsistent, match="group_flop of the step is not proportional to the batch"):
        BatchCost(high, low).at(100)


TERMS = Terms(((ARITHMETIC, "product >256"), (MEMORY, "product"), (MEMORY, "copy"), (LAUNCHES, "")))
PLANTED = np.array([1.4, 2.5, 0.0, 0.7])
PRIOR = np.array([fitting.PRIOR[what] for what, _ in TERMS.names])


def test_planted_factors_are_found_and_what_no_row_has_stays_at_the_prior():
    design = np.random.default_rng(0).lognormal(-7, 1.5, (400, 4))
    assert fitting.factors(design, design @ PLANTED, PRIOR, 1e-6) == pytest.approx(PLANTED, abs=0.01)
    time_s = design @ PLANTED
    time_s[::10] *= 5
    assert fitting.factors(design, time_s, PRIOR, 1e-6) == pytest.approx(PLANTED, rel=0.08, abs=0.05)
    design[:, 2] = 0
    assert fitting.factors(design, design @ PLANTED, PRIOR, 0.02)[2] == pytest.approx(PRIOR[2], rel=1e-4)


def scored(scores, families, group="train | measured widely"):
    return pd.DataFrame({"score": scores, "family": families, "group": group})


def test_intervals_hold_as_many_exchangeable_rows_as_asked():
    rng = np.random.default_rng(0)
    families = np.repeat([f"f{index}" for index in range(100)], 20)
    inside = []
    for _ in range(20):
        low, high, _ = evaluation.by_group(scored(rng.normal(size=2000), families))["train | measured widely"]
        inside.append(((ratio := np.exp(rng.normal(size=2000))) >= low).mean() - (ratio > high).mean())
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)
    assert evaluation.conformal(scored(np.zeros(5), "a"), 0.9)[:2] == (0.0, math.inf), "too few scores bound nothing"
