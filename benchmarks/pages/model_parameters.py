"""cleaning/facts/model_parameters.csv: parameters of torchvision's classifiers, so that a gate needs no torch.

    python -m benchmarks.pages.model_parameters            # print it
    python -m benchmarks.pages.model_parameters --write    # make the file again, some seconds

Each model is built on meta at three numbers of classes: parameters are a × classes + b, and the third must lie on the
line of the other two. Nothing is typed here. Parameters of a vision transformer depend on the size of its images, too
(one position a patch): its row is of one size, which `image_size` names.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable
from dataclasses import astuple, fields

import torch
import torchvision

from cleaning.facts.model_parameters import FILE, ModelParameters
from workloads.catalogue.catalogue import ENTRIES, hyper_of
from workloads.vision.models import build

CLASSES = (10, 1000)
"""The line goes through these."""

BESIDE = 37
"""Number of classes that must lie on it."""

LARGER = 2
"""Factor of the image size at which a model whose parameters depend on it has others."""


def row(model: str) -> ModelParameters:
    """One classifier. Raises ValueError where its parameters are on no line in the classes."""
    sizes = hyper_of(model)
    few, many = (_parameters(model, {**sizes, "num_classes": count}) for count in CLASSES)
    slope, rest = divmod(many - few, CLASSES[1] - CLASSES[0])
    constant = few - slope * CLASSES[0]
    if rest or _parameters(model, {**sizes, "num_classes": BESIDE}) != constant + slope * BESIDE:
        raise ValueError(f"{model}: parameters are not linear in the number of classes")
    larger = {**sizes, "num_classes": CLASSES[0], "image_size": LARGER * sizes["image_size"]}
    return ModelParameters(
        model=model,
        parameters_without_classes=constant,
        parameters_per_class=slope,
        num_classes=sizes["num_classes"],
        image_size=sizes["image_size"] if _parameters(model, larger) != few else None,
        torchvision=torchvision.__version__.partition("+")[0],
    )


def _parameters(model: str, sizes: dict[str, int]) -> int:
    with torch.device("meta"):
        return sum(each.numel() for each in build(model, **sizes).parameters())


def classifiers() -> list[str]:
    """torchvision's models of one image and one label, by name."""
    return sorted(name for name, entry in ENTRIES.items() if entry.task == "classification")


def table(models: Iterable[str]) -> str:
    """The whole file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(ModelParameters)])
    writer.writerows(["" if value is None else value for value in astuple(row(model))] for model in models)
    return text.getvalue()


def main() -> int:
    """Write the file, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name} where the gate reads it")
    options = parser.parse_args()
    text = table(classifiers())
    if options.write:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
