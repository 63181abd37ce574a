"""How much memory a device has, by exactly the name that the driver prints.

`memories.csv` has the datasheets' round gigabytes, read as 10⁹ bytes: what a driver offers is a little more on most
boards, and up to 2 % less on those whose error correction takes part of it. Each row has its source and how it was
verified: `name` (the driver's own name says it), `retrieved` (public text that is its evidence says the same; the
source itself was not opened) or `memory` (nobody looked it up, or what was found differs; it is printed so). A device
that is not in the table has no known memory: none is guessed.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.devices.peaks import normalise

TABLE = Path(__file__).with_name("memories.csv")

VERIFICATIONS = ("name", "retrieved", "memory")


@dataclass(frozen=True)
class Memory:
    """The memory of a device. name: as drivers print it."""

    name: str
    memory_bytes: int
    source: str
    verification: str


def lookup(name: str) -> Memory | None:
    """The memory of the device that prints this name; None where it is not known."""
    return _by_name().get(normalise(name))


def names() -> list[str]:
    """Every name of the table."""
    return [memory.name for memory in _by_name().values()]


@functools.cache
def _by_name() -> Mapping[str, Memory]:
    found: dict[str, Memory] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["verification"] not in VERIFICATIONS:
                raise ValueError(f"{row['names']}: expected verification {VERIFICATIONS}, got {row['verification']!r}")
            if row["verification"] == "retrieved" and not row["evidence"]:
                raise ValueError(f"{row['names']}: expected the text in which it was found, got none")
            for name in row["names"].split("|"):
                memory_bytes = int(row["memory_gb"]) * 10**9
                found[normalise(name)] = Memory(name, memory_bytes, row["source"], row["verification"])
    return found
