"""Published throughputs of which no step can be counted for certain: Zeus' epochs, and MLPerf's whole systems.

Zeus (SymbioticLab/Zeus, `trace/summary_power_*.csv`): seconds and mean watts of one epoch by batch, optimizer and
power limit of the GPU, measured once, with the loading of data in it. The precision is not said, so that there is no
peak to divide by. What a row says is kept: items a second and joules an item where the data set has a known size.

MLPerf Training v3.1 (mlcommons/training_results_v3.1): samples a second of a whole system. A row has no batch, no
precision and no number of devices, and is refused with that reason.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.atlas.published_step import PublishedStep

ZEUS, ZEUS_COMMIT = "Zeus", "3df2fc42768a05e3bea7defdd55cdd0ea981aa7e"

MLPERF, MLPERF_COMMIT = "MLPerf", "d06288b2bd675a9d88e0e6181f5bb5626b71ec19"

DEVICES = {
    "a40": "NVIDIA A40", "p100": "Tesla P100", "rtx6000": "Quadro RTX 6000", "v100": "Tesla V100",
}  # fmt: skip
"""Word of a file's name → device. Which V100 or P100 it is, the source does not say."""

ITEMS = {"cifar100": 50_000, "imagenet": 1_281_167}
"""Data set → images of its training part: Krizhevsky 2009; Russakovsky et al. 2015."""

MODELS = {("imagenet", "resnet50"): ("timm:resnet50", 224)}
"""(data set, network) → the model and the side of its images."""

NO_PRECISION = "the source does not say the precision: no peak"

NOT_SIZED = "the source does not say the sizes of a step of this model"

SYSTEM = "the throughput of a whole system: the row has no batch, no precision and no number of devices"

_ZEUS_COLUMNS = ("dataset", "network", "batch_size", "power_limit", "time_per_epoch", "average_power")
_MLPERF_COLUMNS = ("submitter", "system", "benchmark", "median_samples_per_s")


def is_zeus(path: Path) -> bool:
    """Whether a file is one of Zeus' tables of epochs."""
    return path.parent.name == "zeus" and path.name.startswith("summary_power_") and path.suffix == ".csv"


def is_mlperf(path: Path) -> bool:
    """Whether a file is the table of MLPerf's throughputs."""
    return path.parent.name == "mlperf" and path.name == "v31_throughput.csv"


def read_zeus(path: Path) -> Iterator[PublishedStep]:
    """The rows of one device. Raises ValueError for a file of another form or an unknown device."""
    word = path.stem.removeprefix("summary_power_")
    if word not in DEVICES:
        raise ValueError(f"{path.name}: expected a device of {', '.join(DEVICES)}, got {word!r}")
    for number, row in enumerate(_rows(path, _ZEUS_COLUMNS), 1):
        common: dict[str, Any] = {
            "source": ZEUS, "commit": ZEUS_COMMIT, "file": f"trace/{path.name}", "row": number, "model": row["network"],
            "mode": "train", "precision": "", "layout": "", "framework": "torch", "device": DEVICES[word],
        }  # fmt: skip
        try:
            yield _epoch(common, row)
        except ValueError as fault:
            yield PublishedStep(**common, status="invalid", reason=f"ValueError: {fault}")


def _epoch(common: Mapping[str, Any], row: Mapping[str, str]) -> PublishedStep:
    """Raises ValueError for a number that cannot be."""
    time_s, power_w, limit_w = (_positive(row[name]) for name in ("time_per_epoch", "average_power", "power_limit"))
    facts: dict[str, Any] = {
        "batch_size": int(row["batch_size"]), "mean_power_w": power_w, "power_limit_w": limit_w,
    }  # fmt: skip
    if items := ITEMS.get(row["dataset"]):
        facts |= {
            "items_per_s": items / time_s,
            "step_time_s": time_s / math.ceil(items / facts["batch_size"]),
            "energy_per_item_j": power_w * time_s / items,
        }
    name, image_size = MODELS.get((row["dataset"], row["network"]), ("", None))
    if not name:
        return PublishedStep(**common, **facts, status="no_model", reason=NOT_SIZED)
    return PublishedStep(**common, **facts, counted_model=name, image_size=image_size, reason=NO_PRECISION)


def read_mlperf(path: Path) -> Iterator[PublishedStep]:
    """A row a submission, none of which has a step. Raises ValueError for a file of another form."""
    for number, row in enumerate(_rows(path, _MLPERF_COLUMNS), 1):
        yield PublishedStep(
            source=MLPERF,
            commit=MLPERF_COMMIT,
            file=f"{row['submitter']}/results/{row['system']}/{row['benchmark']}",
            row=number,
            model=row["benchmark"],
            mode="train",
            precision="",
            layout="",
            framework="",
            device=row["system"],
            status="not_counted",
            reason=SYSTEM,
        )


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if missing := [name for name in columns if name not in (rows.fieldnames or ())]:
            raise ValueError(f"{path.name}: expected the columns {', '.join(columns)}, got none called {missing[0]}")
        yield from rows


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(f"{text!r} for a number above 0")
    return number
