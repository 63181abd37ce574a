"""What a core of a CPU can do in a clock, by microarchitecture, and the peak that follows for cores at a clock.

peak = cores × instructions a clock × multiply-adds of an instruction × 2 × clock

`processors.csv` says which microarchitecture a processor has: vendor, family, model numbers, instructions that it must
have and must not have, and where parts of one model differ (Xeon Bronze, Silver, Gold) the name. `vector_units.csv`
says how many instructions of a kind a core of it issues in a clock and how many multiply-adds one of them does, each
row with its source and with what was read there. Where multiplications and additions are instructions of their own
(SSE2, AVX), one of each is one multiply-add.

Not claimed: a processor that the tables lack has no peak, and none is guessed; a unit that nobody documents (Apple's
matrix units, SME) is in no row. The clock is the caller's: a core at another clock has another peak. Cores of two kinds
in one processor (performance and efficiency cores) have no row.
"""

import csv
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from analysis.devices.precisions import UNITS
from results.errors import Unavailable

PROCESSORS = Path(__file__).with_name("processors.csv")
VECTOR_UNITS = Path(__file__).with_name("vector_units.csv")

FLOP_PER_MULTIPLY_ADD = 2

MOST_ISSUE_RATIO = 1.05
"""Instructions that a kernel counted in a clock ÷ those of the table: beyond it the table is wrong."""

WIDEST = {
    "fp64": ("avx512f", "sve", "fma", "avx", "asimd", "sse2"),
    "fp32": ("avx512f", "sve", "fma", "avx", "asimd", "sse2"),
    "bf16": ("amx_bf16", "avx512_bf16"),
    "fp16": ("amx_fp16", "avx512_fp16", "asimdhp"),
    "int8": ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp"),
}
"""Unit → the instructions that compute in it, as /proc/cpuinfo names them, the fastest first."""

HERE = "cpu"
"""The name of this machine's processor, as torch calls it."""

APPLE = "0x61"
"""Apple in the Main ID Register of Arm."""


@dataclass(frozen=True)
class Processor:
    """What a processor says of itself, as /proc/cpuinfo has it. model: a number; of an Arm core its part, as 0xd0c.

    vendor: GenuineIntel, AuthenticAMD; of an Arm core its implementer, as 0x41. flags: its instructions.
    """

    vendor: str
    family: str
    model: str
    stepping: str
    name: str
    flags: frozenset[str]


@dataclass(frozen=True)
class Microarchitecture:
    """One row of processors.csv. models: empty where the instructions alone say it."""

    name: str
    vendor: str
    family: str
    models: tuple[str, ...]
    flags: frozenset[str]
    without: frozenset[str]
    pattern: str
    source: str


@dataclass(frozen=True)
class VectorUnit:
    """One row of vector_units.csv: what a core does in a clock. per_clock: instructions, as 2 or 1/16."""

    microarchitecture: str
    instructions: str
    unit: str
    per_clock: Fraction
    multiply_adds: int
    source: str
    evidence: str

    @property
    def flop_per_clock(self) -> Fraction:
        """FLOP of one core in one clock (int8: operations)."""
        return self.per_clock * self.multiply_adds * FLOP_PER_MULTIPLY_ADD

    def peak(self, cores: float, clock_hz: float) -> float:
        """FLOP/s of so many cores at a clock. Raises ValueError for a size that is not above 0."""
        if not cores > 0 or not clock_hz > 0:
            raise ValueError(f"expected cores and a clock above 0, got {cores} cores at {clock_hz} Hz")
        return float(self.flop_per_clock) * cores * clock_hz


def identify(processor: Processor) -> Microarchitecture:
    """The microarchitecture of a processor. Raises Unavailable, in one line, where the table does not say it."""
    found = [
        row
        for row in microarchitectures()
        if (processor.vendor, processor.family) == (row.vendor, row.family)
        and (not row.models or processor.model in row.models)
        and row.flags <= processor.flags
        and not row.without & processor.flags
        and (not row.pattern or re.search(row.pattern, processor.name) is not None)
    ]
    if len(found) == 1:
        return found[0]
    if processor.vendor == APPLE or processor.name.startswith("Apple"):
        raise Unavailable("no derived peak: Apple documents no units of its cores; use the measured peak")
    what = f"{processor.vendor} family {processor.family} model {processor.model}"
    named = f"{what} ({processor.name})" if processor.name else what
    models = [row for row in microarchitectures() if row.pattern and processor.model in row.models]
    if any((row.vendor, row.family) == (processor.vendor, processor.family) for row in models):
        raise Unavailable(
            f"no derived peak: parts of {what} have one FMA unit or two, and {processor.name!r} names none"
        )
    raise Unavailable(f"no derived peak: analysis/devices/processors.csv has no row for {named}")


def vector_units(microarchitecture: str) -> tuple[VectorUnit, ...]:
    """The rows of a microarchitecture, in the table's order; none for a name that it lacks."""
    return tuple(row for row in _all_units() if row.microarchitecture == microarchitecture)


def names() -> list[str]:
    """Every microarchitecture of the tables."""
    return list(dict.fromkeys(row.microarchitecture for row in _all_units()))


@functools.cache
def microarchitectures() -> tuple[Microarchitecture, ...]:
    """Every row of processors.csv. Raises ValueError for one that no vector unit belongs to."""
    known = set(names())
    with PROCESSORS.open(encoding="utf-8", newline="") as file:
        rows = tuple(
            Microarchitecture(
                row["microarchitecture"],
                row["vendor"],
                row["family"],
                tuple(row["models"].split()),
                frozenset(row["flags"].split()),
                frozenset(row["without"].split()),
                row["name"],
                row["source"],
            )
            for row in csv.DictReader(file)
        )
    if unknown := {row.name for row in rows} - known:
        raise ValueError(f"expected vector units of each microarchitecture, found none of {', '.join(sorted(unknown))}")
    return rows


@functools.cache
def _all_units() -> Sequence[VectorUnit]:
    with VECTOR_UNITS.open(encoding="utf-8", newline="") as file:
        return tuple(_unit(row) for row in csv.DictReader(file))


def _unit(row: dict[str, str]) -> VectorUnit:
    name, unit, instructions = row["microarchitecture"], row["unit"], row["instructions"]
    if unit not in UNITS or instructions not in WIDEST.get(unit, ()):
        raise ValueError(f"{name}: expected a unit and its instructions of {WIDEST}, got {unit} by {instructions}")
    if not row["source"] or not row["evidence"]:
        raise ValueError(f"{name}, {instructions}: expected a source and what was read there, got none")
    return VectorUnit(
        name, instructions, unit, Fraction(row["per_clock"]), int(row["multiply_adds"]), row["source"], row["evidence"]
    )
