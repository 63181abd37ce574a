"""What others reached in matrix products, to be shown beside a ceiling and never divided by.

`achievable.csv` holds one figure a row with its source: mostly the maxima over a sweep of shapes that
stas00/ml-engineering publishes. `names` are rows of `peaks.csv`; a figure whose board nobody named has none and is kept
for people. Not claimed: that the boards, clocks and libraries were those of this machine.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from analysis.devices import peaks

TABLE = Path(__file__).with_name("achievable.csv")


@dataclass(frozen=True)
class Achievable:
    """One figure. unit: of analysis.devices.precisions.UNITS; names: of devices in `peaks.csv`."""

    accelerator: str
    names: tuple[str, ...]
    unit: str
    flop_per_s: float
    source: str


@functools.cache
def all_figures() -> tuple[Achievable, ...]:
    """Every row of the table, in its order."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Achievable(
                row["accelerator"],
                tuple(filter(None, row["names"].split("|"))),
                row["unit"],
                float(row["flop_per_s"]),
                row["source"],
            )
            for row in csv.DictReader(file)
        )


def figures(device_name: str, unit: str) -> list[Achievable]:
    """What others reached on this device's unit; nothing for a device that `peaks.csv` does not know."""
    device = peaks.lookup(device_name)
    if device is None:
        return []
    return [figure for figure in all_figures() if figure.unit == unit and device.name in figure.names]
