"""timm's tables: what their names say, their numbers in SI units, rows that cannot be."""

from __future__ import annotations

import gzip

import pytest

from analysis.atlas import is_timm, read_timm

TRAIN = "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
ROW = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"


def table(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_row_in_si_units(tmp_path, ending):
    (step,) = read_timm(table(tmp_path, TRAIN + ending, ROW + "anynet,2000.5,256.2,512,224,25.56\n"))
    assert (step.source, step.file, step.row, step.model) == ("timm", TRAIN, 1, "anynet")
    assert (step.mode, step.precision, step.layout, step.compiled) == ("train", "amp-fp16", "channels_last", False)
    assert (step.framework, step.device) == ("torch 1.12 cu113", "NVIDIA GeForce RTX 3090")
    assert (step.batch_size, step.image_size, step.items_per_s) == (512, 224, 2000.5)
    assert step.step_time_s == pytest.approx(0.2562)
    assert step.published_parameters == pytest.approx(25.56e6)
    assert step.published_mac is None, "a training table has no multiply-adds"


@pytest.mark.parametrize(("layout", "commit"), [("nchw", "b0d2fcf6"), ("nhwc", "754e1140")])
def test_a_row_names_the_commit_of_its_own_file(tmp_path, layout, commit):
    """Tables of one version of PyTorch came with several commits."""
    name = f"benchmark-train-amp-{layout}-pt110-cu113-rtx3090.csv"
    (step,) = read_timm(table(tmp_path, name, ROW + "anynet,2000.5,256.2,512,224,25.56\n"))
    assert step.commit.startswith(commit)


def test_inference_has_multiply_adds_and_compilers(tmp_path):
    name = "benchmark-infer-amp_bf16-nchw-pt291-cu130-pro6000maxq-dynamo.csv"
    head = "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,infer_gmacs\n"
    (step,) = read_timm(table(tmp_path, name, head + "anynet,224,4000,256,1024,25.56,4.12\n"))
    assert (step.mode, step.precision, step.compiled) == ("infer", "amp-bf16", True)
    assert step.device == "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    assert step.published_mac == pytest.approx(4.12e9)
    assert step.framework == "torch 2.9.1 cu130"


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("anynet,,,,224,1", "''"),
        ("anynet,10,-1,512,224,1", "'-1'"),
        ("anynet,10,nan,512,224,1", "'nan'"),
        ("anynet,10,inf,512,224,1", "'inf'"),
        ("anynet,10,1,512.5,224,1", "'512.5'"),
        ("anynet,10,1,0,224,1", "'0'"),
    ],
)
def test_a_row_that_cannot_be_is_kept_with_the_reason(tmp_path, row, word):
    bad, good = read_timm(table(tmp_path, TRAIN, f"{ROW}{row}\nother,1,1,1,1,1\n"))
    assert (bad.status, bad.step_time_s) == ("invalid", None)
    assert word in bad.reason
    assert (good.status, good.row) == ("ok", 2)


def test_another_file_is_refused(tmp_path):
    assert is_timm(TRAIN)
    assert not is_timm("benchmark-train-amp-nhwc-pt112-cu113-rtx3090.txt")
    with pytest.raises(ValueError, match="expected a table such as benchmark-train"):
        list(read_timm(table(tmp_path, "results.csv", ROW)))
    with pytest.raises(ValueError, match="got none called train_img_size"):
        list(read_timm(table(tmp_path, TRAIN, "model,train_samples_per_sec,train_step_time,train_batch_size\n")))
    with pytest.raises(ValueError, match=r"expected a device of rtx3090.*got 'abacus'"):
        list(read_timm(table(tmp_path, TRAIN.replace("rtx3090", "abacus"), ROW)))
