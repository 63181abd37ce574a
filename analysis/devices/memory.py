"""How much memory a device has, by exactly the name that the driver prints, and amounts of memory as text.

`memories.csv` has the datasheets' round gigabytes, read as 10⁹ bytes: what a driver offers is a little more on most
boards, and up to 2 % less on those whose error correction takes part of it. Each row has its source and how it was
verified: `name` (the driver's own name says it), `retrieved` (public text that is its evidence says the same; the
source itself was not opened) or `memory` (nobody looked it up, or what was found differs; it is printed so). A device
that is not in the table has no known memory: none is guessed.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from analysis.devices.peaks import normalise
from analysis.devices.units import UNITS

MOST_BYTES = 2**63 - 1
"""More are no amount of memory."""

TABLE = Path(__file__).with_name("memories.csv")

VERIFICATIONS = ("name", "retrieved", "memory")

_AMOUNT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*")


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


def parse_bytes(text: str) -> int:
    """The bytes of "80e9", "80GB" or "80 GiB", rounded down. Raises ValueError for another text, less than one
    and more than MOST_BYTES."""
    units = {unit: factor for unit, (measure, factor) in UNITS.items() if measure == "B"}
    found = _AMOUNT.fullmatch(text)
    if found is None or (found[2] or "B") not in units:
        raise ValueError(f"expected bytes, as in 80e9, 80GB or 80GiB, got {text!r}")
    number = math.floor(Fraction(found[1].replace("_", "")) * units[found[2] or "B"])
    if number > MOST_BYTES:
        raise ValueError(f"expected less than 8 EiB, got {text!r}")
    if number < 1:
        raise ValueError(f"expected at least one byte, got {text!r}")
    return number


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
