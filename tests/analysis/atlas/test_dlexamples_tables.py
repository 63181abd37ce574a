"""NVIDIA's tables of image models: which rows become steps, of which precision and device, and what is refused."""

from __future__ import annotations

import lzma

import pytest

from analysis.atlas import is_dlexamples, read_dlexamples

PAGE = "PyTorch/Classification/ConvNets/resnet50v1.5/README.md"
EFFICIENT = "PyTorch/Classification/ConvNets/efficientnet/README.md"
TRAINED = "Top / Training performance results / Training performance: NVIDIA DGX A100 (8x A100 80GB)"
INFERRED = "Top / Inference performance: NVIDIA T4 / Mixed Precision Inference Latency"
TRAINED_HEAD = "GPUs | Throughput - TF32 | Throughput - mixed precision | Speedup"
INFERRED_HEAD = "Batch Size | Throughput Avg | Latency Avg"


def steps(folder, *rows, name="tables.csv.xz"):
    """The steps of a harvest of these rows: (path, section, columns, cells)."""
    (folder / "dlexamples").mkdir(exist_ok=True)
    path = folder / "dlexamples" / name
    lines = ["path,section,columns,cells", *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    raw = ("\n".join(lines) + "\n").encode()
    path.write_bytes(lzma.compress(raw) if name.endswith("xz") else raw)
    assert is_dlexamples(path)
    return list(read_dlexamples(path))


@pytest.mark.parametrize("name", ["tables.csv.xz", "tables.csv"])
def test_a_row_of_training_is_a_step_of_each_precision(tmp_path, name):
    """Eight devices with 7,248 images/s: 906 each."""
    tf32, half = steps(tmp_path, (PAGE, TRAINED, TRAINED_HEAD, "8 | 7248 img/s | 16,621 img/s | 2.29 x"), name=name)
    assert (tf32.precision, half.precision) == ("tf32", "amp-fp16")
    assert (tf32.items_per_s, half.items_per_s, tf32.devices) == (906.0, 16621 / 8, 8)
    assert (tf32.device, tf32.counted_model, tf32.image_size) == ("NVIDIA A100-SXM4-80GB", "timm:resnet50", 224)
    assert (tf32.step_time_s, tf32.batch_size, tf32.status) == (None, None, "ok")
    assert "no batch was published" in tf32.reason


def test_a_row_of_inference_has_the_time_of_its_batch(tmp_path):
    (step,) = steps(tmp_path, (PAGE, INFERRED, INFERRED_HEAD, "64 | 1280 img/s | 51 ms"))
    assert (step.mode, step.device, step.precision) == ("infer", "Tesla T4", "amp-fp16")
    assert (step.batch_size, step.items_per_s, step.step_time_s) == (64, 1280.0, 0.05)
    assert "prints no parameters" in step.reason


def test_models_of_a_table_are_named_in_it(tmp_path):
    head = f"Model | {INFERRED_HEAD}"
    known, other = steps(
        tmp_path,
        (EFFICIENT, INFERRED, head, "efficientnet-b4 | 1 | 50 img/s | 20 ms"),
        (EFFICIENT, INFERRED, head, "efficientnet-widese-b4 | 1 | 50 img/s | 20 ms"),
    )
    assert (known.counted_model, known.image_size, known.status) == ("timm:efficientnet_b4", 380, "ok")
    assert (other.counted_model, other.status) == ("", "no_model")
    assert (known.row, other.row) == (1, 2)


@pytest.mark.parametrize(
    ("path", "section", "columns"),
    [
        ("PyTorch/Classification/ConvNets/README.md", TRAINED, TRAINED_HEAD),  # repeats those of the models' pages
        ("PyTorch/Segmentation/nnUNet/README.md", TRAINED, TRAINED_HEAD),
        (PAGE, "Top / Training accuracy results", "Epochs | Top1"),
        (
            PAGE,
            "Top / Performance / TensorRT backend inference performance",
            "Concurrent requests | Throughput (img/s)",
        ),
    ],
)
def test_other_tables_have_no_steps(tmp_path, path, section, columns):
    assert steps(tmp_path, (path, section, columns, "8 | 7248 img/s | 16621 img/s | 2 x")) == []


def test_a_throughput_that_is_none_is_invalid(tmp_path):
    rows = steps(tmp_path, (PAGE, TRAINED, TRAINED_HEAD, "8 | fast | 0 img/s | 2 x"))
    assert [row.status for row in rows] == ["invalid", "invalid"]
    assert "'fast' for a throughput" in rows[0].reason


def test_devices_that_speed_each_other_up_are_a_mistake_of_the_source(tmp_path):
    """Eight times 100 ÷ 8 is no faster than one; 8 devices with 17.6 times the rate of one are 2.2 × each."""
    rows = steps(
        tmp_path,
        (PAGE, TRAINED, TRAINED_HEAD, "1 | 100 img/s | 100 img/s | 1 x"),
        (PAGE, TRAINED, TRAINED_HEAD, "8 | 780 img/s | 1760 img/s | 2 x"),
    )
    assert [(row.precision, row.status) for row in rows] == [
        ("tf32", "ok"), ("amp-fp16", "invalid"), ("tf32", "ok"), ("amp-fp16", "invalid"),
    ]  # fmt: skip
    assert "2.20 × as fast as one alone" in rows[1].reason


def test_a_file_of_another_form_is_a_mistake(tmp_path):
    (tmp_path / "dlexamples").mkdir()
    path = tmp_path / "dlexamples" / "tables.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="expected the columns of harvested tables, got none called cells"):
        list(read_dlexamples(path))
