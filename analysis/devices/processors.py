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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

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


def identify(processor: Processor) -> str:
    """The microarchitecture of a processor. Raises Unavailable, in one line, where the table does not say it."""
    models = [
        row
        for row in _rows(PROCESSORS)
        if (row["vendor"], row["family"]) == (processor.vendor, processor.family)
        and (not row["models"] or processor.model in row["models"].split())
    ]
    fitting = [
        row["microarchitecture"]
        for row in models
        if set(row["flags"].split()) <= processor.flags
        and not set(row["without"].split()) & processor.flags
        and re.search(row["name"], processor.name) is not None
    ]
    if len(fitting) == 1:
        return fitting[0]
    if processor.vendor == APPLE or processor.name.startswith("Apple"):
        raise Unavailable("no derived peak: Apple documents no units of its cores; use the measured peak")
    what = f"{processor.vendor} family {processor.family} model {processor.model}"
    if any(row["name"] and row["models"] for row in models):
        raise Unavailable(
            f"no derived peak: parts of {what} have one FMA unit or two, and {processor.name!r} names none"
        )
    named = f"{what} ({processor.name})" if processor.name else what
    raise Unavailable(f"no derived peak: analysis/devices/processors.csv has no row for {named}")


@functools.cache
def vector_units(microarchitecture: str) -> tuple[VectorUnit, ...]:
    """The rows of a microarchitecture, in the table's order; none for a name that it lacks."""
    return tuple(
        VectorUnit(
            microarchitecture,
            row["instructions"],
            row["unit"],
            Fraction(row["per_clock"]),
            int(row["multiply_adds"]),
            row["source"],
            row["evidence"],
        )
        for row in _rows(VECTOR_UNITS)
        if row["microarchitecture"] == microarchitecture
    )


def names() -> list[str]:
    """Every microarchitecture of the tables."""
    return list(dict.fromkeys(row["microarchitecture"] for row in _rows(VECTOR_UNITS)))


@functools.cache
def _rows(table: Path) -> Sequence[Mapping[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
