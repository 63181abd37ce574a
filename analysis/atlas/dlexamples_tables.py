"""NVIDIA's published tables of image models in PyTorch (NVIDIA/DeepLearningExamples), as published steps.

The tables stand in `PyTorch/Classification/ConvNets/*/README.md`; they are read from a harvest of all tables of the
repository (`tables.csv`: path, section, columns, cells), one line a row of a table. Training has the throughput of a
system of 1 to 64 devices and no batch, so that there is a utilization and no step time; inference is of one device by
batch, with the average throughput, from which the step's time follows. fp32 and TF32 are distinguished by the source.
It prints no parameters: the model is known by its name alone.

The throughput has the input pipeline in it. Where several devices are more than SUPERLINEAR times as fast as one for
each device, one of both is a mistake of the source, and both are left out with the reason.
"""

from __future__ import annotations

import lzma
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.atlas.published_step import PublishedStep
from results import csv_rows

SOURCE = "NVIDIA examples"

COMMIT = "729963dd47e7c8bd462ad10bfac7a7b0b604e6dd"

FOLDER = "PyTorch/Classification/ConvNets/"

MODELS: Mapping[str, tuple[str, int]] = {
    "resnet50v1.5": ("resnet50", 224),
    "resnext101-32x4d": ("resnext101_32x4d", 224),
    "se-resnext101-32x4d": ("seresnext101_32x4d", 224),
    "efficientnet-b0": ("efficientnet_b0", 224),
    "efficientnet-b4": ("efficientnet_b4", 380),
}
"""Folder, or name in a table → the model of timm, and the images' size in the source's configurations."""

DEVICES: Mapping[str, str] = {
    "V100 16GB": "Tesla V100-SXM2-16GB",
    "V100 32GB": "Tesla V100-SXM2-32GB",
    "A100 80GB": "NVIDIA A100-SXM4-80GB",
    "T4": "Tesla T4",
}
"""Words of a heading → the device as its driver prints it: those of a DGX are SXM."""

PRECISIONS: Mapping[str, str] = {"fp32": "fp32", "tf32": "tf32", "mixed precision": "amp-fp16"}

BY_NAME = "the model is known by its name alone: the source prints no parameters"

NO_BATCH = "no batch was published: no step time and no bound"

NO_MODEL = "timm has no model of this name"

SUPERLINEAR = 1.1

_TRAINED = re.compile(r"Training performance: ")
_INFERRED = re.compile(r"Inference performance: ")
_RATE = re.compile(r"([\d.,]+) img/s")


def is_dlexamples(path: Path) -> bool:
    """Whether a file is the harvest of the source's tables."""
    return path.parent.name == "dlexamples" and path.name in ("tables.csv", "tables.csv.xz")


def read_dlexamples(path: Path) -> Iterator[PublishedStep]:
    """The rows of the image models' own pages, one a throughput. Raises ValueError for a file of another form."""
    raw = path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    rows = csv_rows(text)
    if rows and (missing := sorted({"path", "section", "columns", "cells"} - set(rows[0]))):
        raise ValueError(f"{path.name}: expected the columns of harvested tables, got none called {missing[0]}")
    found: list[PublishedStep] = []
    numbers: dict[str, int] = {}
    for row in rows:
        folder = row["path"].removeprefix(FOLDER).partition("/")[0]
        if row["path"] != f"{FOLDER}{folder}/README.md":
            continue
        numbers[folder] = numbers.get(folder, 0) + 1
        found += _steps(row, folder, numbers[folder])
    yield from _without_mistakes(found)


def _steps(row: Mapping[str, str], folder: str, number: int) -> Iterator[PublishedStep]:
    """A step for each precision of a row of a table; none of a table of something else."""
    *_, heading, below = ("", *row["section"].split(" / "))
    cells = dict(zip(_cells(row["columns"]), _cells(row["cells"]), strict=False))
    model = cells.get("Model", folder)
    if _TRAINED.match(below):
        rates = {name: words for column, words in cells.items() if (name := _precision(column))}
        size = {"mode": "train", "devices": cells.get("GPUs", "")}
    elif _INFERRED.match(heading) and "Batch Size" in cells:
        rates = {_precision(below.removesuffix(" Inference Latency")): cells.get("Throughput Avg", "")}
        size = {"mode": "infer", "devices": "1", "batch": cells["Batch Size"]}
        below = heading
    else:
        return
    for precision, words in rates.items():
        if precision:
            yield _step(
                f"{FOLDER}{folder}/README.md", number, model, _device(below), PRECISIONS[precision], words, size
            )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _precision(words: str) -> str:
    """A key of PRECISIONS that a heading names; empty for a column of something else."""
    name = words.removeprefix("Throughput - ").casefold()
    return name if name in PRECISIONS else ""


def _device(heading: str) -> str:
    """The device of a heading; the heading itself where it is none of DEVICES."""
    return next((device for words, device in DEVICES.items() if heading.rstrip(")").endswith(words)), heading)


def _step(
    file: str, number: int, model: str, device: str, precision: str, words: str, size: Mapping[str, str]
) -> PublishedStep:
    built, image_size = MODELS.get(model, ("", None))
    common: dict[str, Any] = {
        "source": SOURCE, "commit": COMMIT, "file": file, "row": number, "model": model, "mode": size["mode"],
        "precision": precision, "layout": "", "framework": "torch", "device": device, "image_size": image_size,
        "counted_model": f"timm:{built}" if built else "",
    }  # fmt: skip
    try:
        rate, devices = _rate(words), int(size["devices"])
        batch = int(size["batch"]) if "batch" in size else None
    except ValueError as fault:
        return PublishedStep(**common, status="invalid", reason=str(fault))
    common |= {"devices": devices, "items_per_s": rate / devices, "batch_size": batch}
    if not built:
        return PublishedStep(**common, status="no_model", reason=NO_MODEL)
    if batch is None:
        return PublishedStep(**common, reason=NO_BATCH)
    return PublishedStep(**common, step_time_s=batch / rate, reason=BY_NAME)


def _rate(words: str) -> float:
    found = _RATE.fullmatch(words)
    rate = float(found[1].replace(",", "")) if found else math.nan
    if not 0 < rate < math.inf:
        raise ValueError(f"{words!r} for a throughput in img/s")
    return rate


def _without_mistakes(steps: Sequence[PublishedStep]) -> Iterator[PublishedStep]:
    """The steps; those of one and of several devices that cannot both be so are invalid."""

    def key(step: PublishedStep) -> tuple[str, ...]:
        return step.file, step.model, step.mode, step.device, step.precision

    single = {key(step): step.items_per_s for step in steps if step.devices == 1 and step.mode == "train"}
    times: dict[tuple[str, ...], float] = {}
    for step in steps:
        if step.mode == "train" and step.items_per_s and (one := single.get(key(step))):
            times[key(step)] = max(times.get(key(step), 0.0), step.items_per_s / one)
    for step in steps:
        far = times.get(key(step), 0.0) if step.status == "ok" else 0.0
        if far > SUPERLINEAR:
            reason = f"each of several devices is {far:.2f} × as fast as one alone: a mistake of the source"
            yield replace(step, status="invalid", reason=reason)
        else:
            yield step
