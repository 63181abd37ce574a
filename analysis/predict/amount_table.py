"""The kept amounts of models that others measured: one line a model, image size, mode, way of running and class.

Made by `python -m runners.atlas import` from the same counts as the table of published steps, so that a fit needs
neither torch nor the models.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.predict.operation_amounts import Amounts, StepAmounts

AMOUNTS = Path(__file__).with_name("step_amounts.csv.gz")

HEAD = ("model", "image_size", "mode", "run", "class", "launches", "flop", "flop_per_item", "bytes", "bytes_per_item")


@dataclass(frozen=True)
class StepKey:
    """Which step: a model in the words of --models, square images of this size, "train" or "infer"."""

    model: str
    image_size: int
    mode: str


def packed(steps: Iterable[tuple[StepKey, Mapping[str, StepAmounts]]]) -> bytes:
    """The table as a gzipped CSV: the same bytes for the same steps. Amounts as whole numbers or halves."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEAD)
    for key, runs in steps:
        for run, step in sorted(runs.items()):
            for name, each in sorted(step.items()):
                numbers = (f"{number:.15g}" for number in (*each.flop, *each.nbytes))
                writer.writerow((key.model, key.image_size, key.mode, run, name, each.launches, *numbers))
    return gzip.compress(file.getvalue().encode(), 9, mtime=0)


@functools.cache
def kept_amounts(path: Path = AMOUNTS) -> Mapping[StepKey, Mapping[str, StepAmounts]]:
    """Step → run → class → amounts. Raises ValueError for a file that is not the table."""
    found: dict[StepKey, dict[str, dict[str, Amounts]]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        if (head := tuple(next(rows, ()))) != HEAD:
            raise ValueError(f"{path.name}: expected the columns {', '.join(HEAD)}, got {', '.join(head)}")
        for model, size, mode, run, name, launches, *numbers in rows:
            flop, flop_per_item, nbytes, bytes_per_item = map(float, numbers)
            step = found.setdefault(StepKey(model, int(size), mode), {}).setdefault(run, {})
            step[name] = Amounts(int(launches), (flop, flop_per_item), (nbytes, bytes_per_item))
    return found
