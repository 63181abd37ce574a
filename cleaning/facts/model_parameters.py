"""How many parameters a model of this name has: torchvision's classifiers, from a generated table; no torch.

`python -m benchmarks.pages.model_parameters --write` makes the table. A name that is not in it, other sizes
than those that it was made at, and widths of a ResNet have no answer here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from results.records import Parameters

FILE = Path(__file__).with_suffix(".csv")

OWN_WIDTH = ("width", 64)
"""The size of a ResNet that changes nothing: its own."""


@dataclass(frozen=True)
class ModelParameters:
    """parameters = parameters_without_classes + parameters_per_class × classes. num_classes: those that the workload
    has by itself. image_size: the only one that this is so for; None: every one. torchvision: version that built it.
    """

    model: str
    parameters_without_classes: int
    parameters_per_class: int
    num_classes: int
    image_size: int | None
    torchvision: str

    def parameters(self, num_classes: int | None = None) -> int:
        """Parameters at this number of classes; None: at the workload's own."""
        classes = self.num_classes if num_classes is None else num_classes
        return self.parameters_without_classes + self.parameters_per_class * classes


@cache
def table() -> Mapping[str, ModelParameters]:
    """Model → its row."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["model"]: _row(row) for row in csv.DictReader(file)}


def _row(row: Mapping[str, str]) -> ModelParameters:
    return ModelParameters(
        model=row["model"],
        parameters_without_classes=int(row["parameters_without_classes"]),
        parameters_per_class=int(row["parameters_per_class"]),
        num_classes=int(row["num_classes"]),
        image_size=int(row["image_size"]) if row["image_size"] else None,
        torchvision=row["torchvision"],
    )


def known_parameters(run: Parameters) -> ModelParameters | None:
    """The row of a cell's model; None where there is none of its sizes."""
    row = table().get(run.model)
    sizes = [item for item in run.hyper.items() if item != OWN_WIDTH]
    if row is None or sizes or (row.image_size and run.image_size not in (None, row.image_size)):
        return None
    return row
