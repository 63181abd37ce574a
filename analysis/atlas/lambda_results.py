"""Lambda's training benchmark (lambdal/deeplearning-benchmark, `pytorch/*.csv`), as published steps.

Two tables a precision: `…-throughput-PRECISION.csv` and `…-bs-PRECISION.csv`, a line a system of 1 to 8 devices and a
column a model. Both are of the whole system: items a second, and items a step, so that a device's batch is the step's
÷ the number of devices. A row here is of one device: the system's throughput and batch ÷ devices, the step's time is
the same. Tables of the second version (`…-throughput-v2-PRECISION.csv`) have no batches beside them, and a system's
name has its number of devices: their rows have a throughput and no step time. The source says neither layouts nor
parameters, and its times have the input pipeline in them; fp16 is AMP, fp32 is TF32 on devices that have it (NVIDIA's
container has that on), which the source does not say.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.atlas.published_step import PublishedStep

SOURCE = "Lambda"

COMMIT = "aa5addb6a53675a649a80036dad548f1c27cbcc4"

MODELS = {"resnet50": "resnet50"}
"""Column → the model of timm that it names: NVIDIA's ResNet-50 v1.5, whose stride is in the 3 × 3 convolution."""

IMAGE_SIZE = 224

PRECISIONS = {"fp16": "amp-fp16", "fp32": "fp32"}

DEVICES = {
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
}
"""The source's words → the device as its driver prints it. A V100 of Lambda's cloud is taken for an SXM2."""

BY_NAME = "the model is known by its name alone: the source prints no parameters"

NOT_SIZED = "the source does not say the sizes of a step of this model"

NO_BATCH = "no batch was published: no step time and no bound"

SECOND_DEVICES = {
    "H100_80GB_SXM5": "NVIDIA H100 80GB HBM3",
    "H100_80GB_PCIe": "NVIDIA H100 PCIe",
    "H200_140GB": "NVIDIA H200",
    "GH200_96GB": "NVIDIA GH200 480GB",
    "B200_192GB": "NVIDIA B200",
}
"""Words of a system's name in the second version → the device as its driver prints it."""

_NAME = re.compile(r"(?:pytorch_)?pytorch-train-throughput-(?P<second>v2-)?(?P<precision>fp16|fp32)\.csv")
_SECOND = re.compile(rf"\w*?(?P<devices>\d)x(?P<device>{'|'.join(SECOND_DEVICES)})_.*")
_SYSTEM = re.compile(r"(?:(?:Lambda|Dell)\w*|SMC|1CC|RAIDZ1)?\s*(?:[248]x\s*)?(?P<device>.+)")


def is_lambda(path: Path) -> bool:
    """Whether a file is a table of throughputs with batches beside it."""
    return path.parent.name == "lambda" and bool(_NAME.fullmatch(path.name))


def read_lambda(path: Path) -> Iterator[PublishedStep]:
    """The rows of a table of throughputs, one a system and model; the table of batches lies beside it.

    Raises ValueError for a file that is not of the source, or whose table of batches has other systems.
    """
    if not is_lambda(path):
        raise ValueError(f"expected lambda/pytorch-train-throughput-fp16.csv, got {path.name!r}")
    found = _NAME.fullmatch(path.name)
    if found is not None and found["second"]:
        yield from _second_version(path)
        return
    batches = {row["name_gpu"]: row for row in _rows(path.with_name(path.name.replace("throughput", "bs")))}
    number = 0
    for row in _rows(path):
        if row["name_gpu"] not in batches:
            raise ValueError(f"{path.name}: expected {row['name_gpu']} in the table of batches, too")
        for model in [name for name in row if name not in ("name_gpu", "num_gpu", "watt", "price")]:
            number += 1
            yield _step(path.name, number, model, row, batches[row["name_gpu"]])


def _second_version(path: Path) -> Iterator[PublishedStep]:
    """The rows of a table without batches."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if missing := sorted({"", "resnet50"} - set(lines.fieldnames or ())):
            raise ValueError(f"{path.name}: expected the columns of Lambda's tables, got none called {missing[0]!r}")
        number = 0
        for line in lines:
            system = line.pop("")
            named = _SECOND.fullmatch(system)
            for model, rate in line.items():
                number += 1
                device = SECOND_DEVICES[named["device"]] if named else system
                common = _common(path.name, number, model, device)
                yield _without_batch(common, int(named["devices"]) if named else 0, rate, model)


def _without_batch(common: dict[str, Any], devices: int, rate: str, model: str) -> PublishedStep:
    try:
        items_per_s = float(rate)
    except ValueError as fault:
        return PublishedStep(**common, status="invalid", reason=f"ValueError: {fault}")
    if not items_per_s > 0:
        return PublishedStep(**common, status="invalid", reason="no throughput was published")
    if not devices:
        return PublishedStep(**common, status="invalid", reason="the system's name does not say its devices")
    common |= {"devices": devices, "items_per_s": items_per_s / devices}
    if model not in MODELS:
        return PublishedStep(**common, status="no_model", reason=NOT_SIZED)
    return PublishedStep(**common, image_size=IMAGE_SIZE, reason=NO_BATCH)


def _common(file: str, number: int, model: str, device: str) -> dict[str, Any]:
    found = _NAME.fullmatch(file)
    assert found is not None
    return {
        "source": SOURCE, "commit": COMMIT, "file": file, "row": number, "model": model, "mode": "train",
        "precision": PRECISIONS[found["precision"]], "layout": "", "framework": "torch", "device": device,
    }  # fmt: skip


def _rows(path: Path) -> list[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if missing := sorted({"name_gpu", "num_gpu", "resnet50"} - set(rows.fieldnames or ())):
            raise ValueError(f"{path.name}: expected the columns of Lambda's tables, got none called {missing[0]}")
        return list(rows)


def _step(file: str, number: int, model: str, rate: Mapping[str, str], batch: Mapping[str, str]) -> PublishedStep:
    common = _common(file, number, model, device_of(rate["name_gpu"]))
    try:
        devices = int(float(rate["num_gpu"]))
        items_per_s, items = float(rate[model]), float(batch[model])
    except (ValueError, KeyError) as fault:
        return PublishedStep(**common, status="invalid", reason=f"{type(fault).__name__}: {fault}")
    if not items_per_s > 0 or not items > 0:
        return PublishedStep(**common, devices=devices, status="invalid", reason="no throughput or batch was published")
    common |= {
        "devices": devices, "batch_size": round(items / devices), "step_time_s": items / items_per_s,
        "items_per_s": items_per_s / devices,
    }  # fmt: skip
    if model not in MODELS:
        return PublishedStep(**common, status="no_model", reason=NOT_SIZED)
    return PublishedStep(**common, image_size=IMAGE_SIZE, reason=BY_NAME)


def device_of(system: str) -> str:
    """The device of a system's name; the name itself where it is none of DEVICES."""
    found = _SYSTEM.fullmatch(system)
    word = (found["device"] if found else system).strip()
    return DEVICES.get(word, system)
