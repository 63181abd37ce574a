"""Steps that others measured, as their files have them: the tables of timm, of Lambda and of NVIDIA's examples.

* timm (huggingface/pytorch-image-models, `results/*.csv`, here `timm/`): 10 warm-up and 50 timed steps, synchronised
  after each; clocks not locked; AMP in fp16 unless the name says bf16, without a gradient scaler; SGD.
* Lambda (lambdal/deeplearning-benchmark, `pytorch/*.csv`, here `lambda/`): systems of 1 to 8 devices with the input
  pipeline in the time, a table of throughputs and one of batches; tables of its second version have none. Of its
  models only ResNet-50 has sizes that can be built (NVIDIA's v1.5). fp32 may be TF32, which it does not say.
* NVIDIA (NVIDIA/DeepLearningExamples, `PyTorch/Classification/ConvNets/*/README.md`, here a harvest of all its tables
  as `dlexamples/tables.csv.xz`: path, section, columns, cells): training without a batch, inference by batch.

A row is a dict with the columns of the table of published steps, and `items_per_s`, `published_parameters` and
`published_mac` where the source has them. A row is of one device of its system. Rows without a usable number, and of
models that cannot be built, are left out.
"""

import contextlib
import csv
import gzip
import io
import lzma
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

TIMM_COMMIT = "aa4b5850c1543fa488abf260f18390eda46cf85d"

TIMM_COMMITS = {
    "benchmark-train-amp-nchw-pt110-cu113-rtx3090.csv": "b0d2fcf647251f645c1b9718769b110c4f1731ee",
    "benchmark-train-amp-nchw-pt111-cu113-rtx3090.csv": "754e11402a731ccd5e1cbb44d5ce2d6dbec8ab9a",
    "benchmark-train-amp-nhwc-pt110-cu113-rtx3090.csv": "754e11402a731ccd5e1cbb44d5ce2d6dbec8ab9a",
    "benchmark-train-amp-nhwc-pt111-cu113-rtx3090.csv": "b0d2fcf647251f645c1b9718769b110c4f1731ee",
    "benchmark-infer-amp-nchw-pt110-cu113-rtx3090.csv": "eac2df3d2c5bba0227ad6e9f9704f12eb5c1e405",
    "benchmark-infer-amp-nchw-pt111-cu113-rtx3090.csv": "754e11402a731ccd5e1cbb44d5ce2d6dbec8ab9a",
    "benchmark-infer-amp-nchw-pt112-cu113-rtx3090.csv": "c865028c34fc05cc7deea8e753b30d8cd1952591",
    "benchmark-infer-amp-nhwc-pt110-cu113-rtx3090.csv": "754e11402a731ccd5e1cbb44d5ce2d6dbec8ab9a",
    "benchmark-infer-amp-nhwc-pt111-cu113-rtx3090.csv": "c9f208f7f8d5917f9a900ef2f96d9aa2ffb9264e",
    "benchmark-infer-amp-nhwc-pt112-cu113-rtx3090.csv": "c865028c34fc05cc7deea8e753b30d8cd1952591",
    "model_benchmark_amp_nchw_rtx3090.csv": "",  # not recorded
}
"""Table → the commit at which it was read, where that is not TIMM_COMMIT."""

TIMM_DEVICES = {
    "rtx3090": "NVIDIA GeForce RTX 3090",
    "rtx4090": "NVIDIA GeForce RTX 4090",
    "4090": "NVIDIA GeForce RTX 4090",
    "5090": "NVIDIA GeForce RTX 5090",
    "pro6000maxq": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
}
"""The word of a file's name → the device as its driver prints it; tables of CPUs are not read."""

TIMM_PRECISIONS = {"amp": "amp-fp16", "amp_bf16": "amp-bf16", "bf16": "bf16", "fp32": "fp32"}

LAYOUTS = {"nchw": "channels_first", "nhwc": "channels_last"}

TIMM_NAME = re.compile(
    r"(?:benchmark|model_benchmark)[-_](?:(?P<mode>train|infer)-)?(?P<precision>amp_bf16|amp|bf16|fp32)[-_]"
    r"(?P<layout>nchw|nhwc)[-_](?:pt(?P<torch>\d{3})-(?P<runtime>cu\d+|cpu)-)?(?P<device>[a-z0-9_]+?)"
    r"(?P<compiled>-dynamo)?\.csv(?:\.gz)?"
)


def read_sources(folder: Path) -> list[Row]:
    """The rows of every table below a folder. Raises ValueError where there is none."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    rows = [row for path in paths for read in (timm_rows, lambda_rows, nvidia_rows) for row in read(path)]
    if not rows:
        raise ValueError(f"expected tables such as benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv below {folder}")
    return rows


def timm_rows(path: Path) -> Iterator[Row]:
    named = TIMM_NAME.fullmatch(path.name)
    if named is None or named["device"] not in TIMM_DEVICES:
        return
    mode, file = named["mode"] or "infer", path.name.removesuffix(".gz")
    for number, line in enumerate(_lines(path), 1):
        with contextlib.suppress(ValueError):
            yield {
                "source": "timm",
                "commit": TIMM_COMMITS.get(file, TIMM_COMMIT),
                "file": file,
                "row": number,
                "model": line["model"],
                "counted_model": line["model"],
                "mode": mode,
                "precision": TIMM_PRECISIONS[named["precision"]],
                "layout": LAYOUTS[named["layout"]],
                "framework": f"torch {_version(named['torch'])} {named['runtime']}" if named["torch"] else "torch",
                "compiled": bool(named["compiled"]),
                "device": TIMM_DEVICES[named["device"]],
                "devices": 1,
                "batch_size": int(_positive(line[f"{mode}_batch_size"])),
                "image_size": int(_positive(line[f"{mode}_img_size"])),
                "step_time_s": _positive(line[f"{mode}_step_time"]) / 1e3,
                "items_per_s": _positive(line[f"{mode}_samples_per_sec"]),
                "published_parameters": float(line.get("param_count") or 0) * 1e6,
                "published_mac": float(line.get(f"{mode}_gmacs") or 0) * 1e9,
            }


def _version(digits: str) -> str:
    """PyTorch's version: "112" is 1.12, "291" is 2.9.1."""
    return f"{digits[0]}.{digits[1:]}" if digits[0] == "1" else ".".join(digits)


def _lines(path: Path) -> list[dict[str, str]]:
    opened = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)
    return list(csv.DictReader(io.StringIO(opened(path.read_bytes()).decode(), newline="")))


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(f"expected a number above 0, got {text!r}")
    return number


LAMBDA_DEVICES = {
    "Quadro RTX 8000": "Quadro RTX 8000",
    "V100 16GB": "Tesla V100-SXM2-16GB",
    "RTX 3090": "NVIDIA GeForce RTX 3090",
    "RTX 4090": "NVIDIA GeForce RTX 4090",
    "RTX A6000": "NVIDIA RTX A6000",
    "RTX 6000 Ada": "NVIDIA RTX 6000 Ada Generation",
    "A10": "NVIDIA A10",
    "A100 40GB PCIe": "NVIDIA A100-PCIE-40GB",
    "A100 80GB PCIe": "NVIDIA A100 80GB PCIe",
    "A100 80GB SXM4": "NVIDIA A100-SXM4-80GB",
    "H100 80GB PCIe Gen5": "NVIDIA H100 PCIe",
    "H100 80GB SXM5": "NVIDIA H100 80GB HBM3",
    "H100_80GB_SXM5": "NVIDIA H100 80GB HBM3",
    "H100_80GB_PCIe": "NVIDIA H100 PCIe",
    "H200_140GB": "NVIDIA H200",
    "GH200_96GB": "NVIDIA GH200 480GB",
    "B200_192GB": "NVIDIA B200",
}
"""Words of a system's name → the device as its driver prints it. A V100 of Lambda's cloud is taken for an SXM2."""

LAMBDA_NAME = re.compile(r"(?:pytorch_)?pytorch-train-throughput-(?P<second>v2-)?(?P<precision>fp16|fp32)\.csv")
LAMBDA_SYSTEM = re.compile(r"(?:(?:Lambda|Dell)\w*|SMC|1CC|RAIDZ1)?\s*(?:[248]x\s*)?(?P<device>.+)")
LAMBDA_SECOND = re.compile(r"\w*?(?P<devices>\d)x(?P<device>[A-Z0-9]+_\d+GB(?:_SXM5|_PCIe)?)_.*")


def lambda_rows(path: Path) -> Iterator[Row]:
    """ResNet-50's rows of a table of throughputs; the table of batches lies beside one of the first version."""
    named = LAMBDA_NAME.fullmatch(path.name)
    if named is None or path.parent.name != "lambda":
        return
    lines = _lines(path)
    name = "" if named["second"] else "name_gpu"
    models = [column for column in lines[0] if column not in (name, "num_gpu", "watt", "price")]
    batches = (
        {}
        if named["second"]
        else {line[name]: line for line in _lines(path.with_name(path.name.replace("throughput", "bs")))}
    )
    for index, line in enumerate(lines):
        system = (LAMBDA_SECOND if named["second"] else LAMBDA_SYSTEM).fullmatch(line[name])
        with contextlib.suppress(ValueError):
            if system is None:
                continue
            devices = int(float(system["devices"] if named["second"] else line["num_gpu"]))
            row = {
                "source": "Lambda",
                "commit": "aa5addb6a53675a649a80036dad548f1c27cbcc4",
                "file": path.name,
                "row": index * len(models) + models.index("resnet50") + 1,
                **_image_model("resnet50", "resnet50", 224),
                "mode": "train",
                "precision": {"fp16": "amp-fp16", "fp32": "fp32"}[named["precision"]],
                "device": LAMBDA_DEVICES.get(system["device"].strip(), line[name]),
                "devices": devices,
                "items_per_s": _positive(line["resnet50"]) / devices,
            }
            if not named["second"]:
                items = _positive(batches[line[name]]["resnet50"])
                row["step_time_s"] = items / _positive(line["resnet50"])
                row["batch_size"] = round(items / devices)
            yield row


def _image_model(model: str, counted_model: str, image_size: int) -> Row:
    return {
        "model": model, "counted_model": counted_model, "layout": "", "framework": "torch", "compiled": False,
        "batch_size": None, "image_size": image_size, "step_time_s": None,
    }  # fmt: skip


NVIDIA_FOLDER = "PyTorch/Classification/ConvNets/"

NVIDIA_MODELS: Mapping[str, tuple[str, int]] = {
    "resnet50v1.5": ("resnet50", 224),
    "resnext101-32x4d": ("resnext101_32x4d", 224),
    "se-resnext101-32x4d": ("seresnext101_32x4d", 224),
    "efficientnet-b0": ("efficientnet_b0", 224),
    "efficientnet-b4": ("efficientnet_b4", 380),
}
"""Folder, or name in a table → the model of timm, and the images' size in the source's configurations."""

NVIDIA_DEVICES: Mapping[str, str] = {
    "V100 16GB": "Tesla V100-SXM2-16GB",
    "V100 32GB": "Tesla V100-SXM2-32GB",
    "A100 80GB": "NVIDIA A100-SXM4-80GB",
    "T4": "Tesla T4",
}
"""Words of a heading → the device as its driver prints it: those of a DGX are SXM."""

NVIDIA_PRECISIONS: Mapping[str, str] = {"fp32": "fp32", "tf32": "tf32", "mixed precision": "amp-fp16"}

SUPERLINEAR = 1.1
"""Each of several devices is at most so many times as fast as one alone, or one of both is the source's mistake."""


def nvidia_rows(path: Path) -> Iterator[Row]:
    if path.parent.name != "dlexamples" or not path.name.startswith("tables.csv"):
        return
    rows: list[Row] = []
    numbers: Counter[str] = Counter()
    for line in _lines(path):
        folder = line["path"].removeprefix(NVIDIA_FOLDER).partition("/")[0]
        if line["path"] == f"{NVIDIA_FOLDER}{folder}/README.md":
            numbers[folder] += 1
            rows += _nvidia_steps(line, folder, numbers[folder])
    yield from _without_mistakes(rows)


def _nvidia_steps(line: Mapping[str, str], folder: str, number: int) -> Iterator[Row]:
    """A step for each precision of a row of a table; none of a table of something else."""
    *_, heading, below = ("", *line["section"].split(" / "))
    columns, values = ([cell.strip() for cell in line[name].split("|")] for name in ("columns", "cells"))
    cells = dict(zip(columns, values, strict=False))
    model = cells.get("Model", folder)
    if below.startswith("Training performance: "):
        rates = {column.removeprefix("Throughput - ").casefold(): words for column, words in cells.items()}
        mode, devices, batch_size = "train", cells.get("GPUs", ""), None
    elif heading.startswith("Inference performance: ") and "Batch Size" in cells:
        rates = {below.removesuffix(" Inference Latency").casefold(): cells.get("Throughput Avg", "")}
        mode, devices, batch_size, below = "infer", "1", int(cells["Batch Size"]), heading
    else:
        return
    place = below.rstrip(")")
    for name in rates.keys() & NVIDIA_PRECISIONS.keys():
        rate = re.fullmatch(r"([\d.,]+) img/s", rates[name])
        if rate is None or model not in NVIDIA_MODELS:
            continue
        items_per_s = float(rate[1].replace(",", ""))
        yield {
            "source": "NVIDIA examples",
            "commit": "729963dd47e7c8bd462ad10bfac7a7b0b604e6dd",
            "file": f"{NVIDIA_FOLDER}{folder}/README.md",
            "row": number,
            **_image_model(model, *NVIDIA_MODELS[model]),
            "mode": mode,
            "precision": NVIDIA_PRECISIONS[name],
            "device": next((device for words, device in NVIDIA_DEVICES.items() if place.endswith(words)), place),
            "devices": int(devices),
            "batch_size": batch_size,
            "items_per_s": items_per_s / int(devices),
            "step_time_s": batch_size and batch_size / items_per_s,
        }


def _without_mistakes(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows without those of one and of several devices that cannot both be so."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("file", "model", "mode", "device", "precision"))

    single = {key(row): row["items_per_s"] for row in rows if row["devices"] == 1 and row["mode"] == "train"}
    times: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["mode"] == "train" and key(row) in single:
            times[key(row)] = max(times.get(key(row), 0.0), row["items_per_s"] / single[key(row)])
    yield from (row for row in rows if times.get(key(row), 0.0) <= SUPERLINEAR)
