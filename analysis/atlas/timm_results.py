"""The benchmark tables of timm (huggingface/pytorch-image-models, `results/*.csv`), as published steps.

How they were measured (timm's benchmark.py): 10 warm-up and 50 timed steps, synchronised after each; clocks not
locked; AMP in fp16 unless the name says bf16, without a gradient scaler; SGD. Where memory ran out the batch was
lowered, so the batch says something about memory. Column names differ from version to version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.atlas.published_step import PublishedStep
from results import csv_lines, csv_rows, read_text

SOURCE = "timm"

NEWEST = "aa4b5850c1543fa488abf260f18390eda46cf85d"

COMMITS = {
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
"""Table → the commit at which it was read, where that is not NEWEST."""

DEVICES = {
    "rtx3090": "NVIDIA GeForce RTX 3090",
    "rtx4090": "NVIDIA GeForce RTX 4090",
    "4090": "NVIDIA GeForce RTX 4090",
    "5090": "NVIDIA GeForce RTX 5090",
    "pro6000maxq": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "i9_10940x": "Intel(R) Core(TM) i9-10940X CPU",
    "i7_12700h": "12th Gen Intel(R) Core(TM) i7-12700H",
}
"""The word of a file's name → the device as its driver prints it."""

PRECISIONS = {"amp": "amp-fp16", "amp_bf16": "amp-bf16", "bf16": "bf16", "fp32": "fp32"}

LAYOUTS = {"nchw": "channels_first", "nhwc": "channels_last"}

_COLUMNS = ("batch_size", "img_size", "step_time", "samples_per_sec")

_NAME = re.compile(
    r"benchmark-(?P<mode>train|infer)-(?P<precision>amp_bf16|amp|bf16|fp32)-(?P<layout>nchw|nhwc)"
    r"-pt(?P<torch>\d{3})-(?P<runtime>cu\d+|cpu)-(?P<device>[a-z0-9_]+?)(?P<compiled>-dynamo)?\.csv(\.gz)?"
)
_OLDEST = re.compile(r"model_benchmark_(?P<precision>amp)_(?P<layout>nchw|nhwc)_(?P<device>[a-z0-9]+)\.csv(\.gz)?")


def read_timm(path: Path) -> Iterator[PublishedStep]:
    """The rows of one table; one with a value that cannot be has the status "invalid" and the reason.

    Raises ValueError for a file that is none of timm's tables, or has not their columns.
    """
    facts = _facts(path.name)
    for number, row in enumerate(_rows(path), 1):
        common = _common(path.name, number, row, facts)
        try:
            yield PublishedStep(**common, **_numbers(row, facts["mode"]))
        except (ValueError, OverflowError) as fault:
            yield PublishedStep(**common, status="invalid", reason=str(fault))


def is_timm(name: str) -> bool:
    """Whether a file's name is that of one of timm's tables."""
    return bool(_NAME.fullmatch(name) or _OLDEST.fullmatch(name))


def _facts(name: str) -> dict[str, str]:
    """What the file's name says. Raises ValueError for another name or an unknown device."""
    found = _NAME.fullmatch(name) or _OLDEST.fullmatch(name)
    if found is None:
        raise ValueError(f"expected a table such as benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv, got {name!r}")
    facts = {"mode": "infer", "torch": "", "runtime": "", "compiled": ""}
    facts |= {key: value or "" for key, value in found.groupdict().items()}
    if facts["device"] not in DEVICES:
        raise ValueError(f"{name}: expected a device of {', '.join(DEVICES)}, got {facts['device']!r}")
    return facts


def _rows(path: Path) -> list[dict[str, str]]:
    mode = _facts(path.name)["mode"]
    wanted = {"model", *(f"{mode}_{name}" for name in _COLUMNS)}
    try:
        text = read_text(path)
        names = csv_lines(text.partition("\n")[0])
        if missing := sorted(wanted - {name for line in names for name in line}):
            raise ValueError(f"expected the columns of timm's tables, got none called {missing[0]}")
        return csv_rows(text)
    except ValueError as fault:
        raise ValueError(f"{path.name}: {fault}") from fault


def _common(file: str, number: int, row: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, Any]:
    """What a row is of, as fields of `PublishedStep`."""
    mode = facts["mode"]
    version, name = _version(facts["torch"]), file.removesuffix(".gz")
    return {
        "source": SOURCE,
        "commit": COMMITS.get(name, NEWEST),
        "file": name,
        "row": number,
        "model": row["model"],
        "mode": mode,
        "precision": PRECISIONS[facts["precision"]],
        "layout": LAYOUTS[facts["layout"]],
        "framework": f"torch {version} {facts['runtime']}".strip() if version else "torch",
        "compiled": bool(facts["compiled"]),
        "device": DEVICES[facts["device"]],
    }


def _version(digits: str) -> str:
    """PyTorch's version: "112" is 1.12, "291" is 2.9.1; empty where the name has none."""
    if not digits:
        return ""
    return f"{digits[0]}.{digits[1:]}" if digits[0] == "1" else ".".join(digits)


def _numbers(row: Mapping[str, str], mode: str) -> dict[str, Any]:
    """What was measured, as fields of `PublishedStep`. Raises ValueError for a number that cannot be."""
    return {
        "batch_size": _whole(row[f"{mode}_batch_size"]),
        "image_size": _whole(row[f"{mode}_img_size"]),
        "step_time_s": _positive(row[f"{mode}_step_time"]) / 1e3,
        "items_per_s": _positive(row[f"{mode}_samples_per_sec"]),
        "published_parameters": _optional(row.get("param_count"), 1e6),
        "published_mac": _optional(row.get(f"{mode}_gmacs"), 1e9),
    }


def _whole(text: str) -> int:
    number = float(text)
    if number != int(number) or number < 1:
        raise ValueError(f"{text!r} for a whole number")
    return int(number)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(f"{text!r} for a time or rate above 0")
    return number


def _optional(text: str | None, unit: float) -> float | None:
    """None where the table has no such column or an empty field, and for 0, which timm prints where it has no count."""
    return float(text) * unit or None if text else None
