"""What this CPU's cores can do in theory, and what a kernel of independent multiply-adds reaches.

The peak is cores × FLOP a clock × clock: cores that the process may use, FLOP a clock of `analysis.devices.processors`,
the clock of a dependent chain while all of them issue these instructions. The kernel checks the table: where cores
issue more in a clock than a row allows, or much less, there is no peak and the reason says so. The kernel is compiled
on demand; without a compiler there is no clock and hence no peak, and the row says so.

Not claimed: that any operation of a network reaches the peak. The clock is that of a fraction of a second: under a load
of minutes heat may lower it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from analysis.devices.ceilings import ISSUE
from analysis.devices.processors import (
    FLOP_PER_MULTIPLY_ADD,
    MOST_ISSUE_RATIO,
    WIDEST,
    VectorUnit,
    identify,
    vector_units,
)
from measure.device.cpu_identity import Allowance, Neighbours, allowance, processor, warning
from measure.native.kernels import compiled_program, issue_rate
from results.errors import Unavailable
from results.records.cell import Ceiling

LEAST_RATIO, NOTED_RATIO = 0.6, 0.9
"""Instructions a clock, measured ÷ of the table: below the first, and above MOST_ISSUE_RATIO, there is no peak; below
the second the row says so. A core whose other hardware thread is busy issues about half."""

MULTIPLY_ADDS = {
    "sse2": 2, "avx": 4, "fma": 8, "avx512f": 16, "asimd": 4,
    "avx512_bf16": 32, "avx512_fp16": 32, "asimdhp": 8, "bf16": 16,
    "avx512_vnni": 64, "avx_vnni": 32, "asimddp": 16, "i8mm": 32,
    "amx_bf16": 8192, "amx_int8": 16384,
}  # fmt: skip
"""Instructions → multiply-adds that one of them does, in the dtype that the kernel uses (fp32 of those that have it).
Without SVE, whose width is the processor's: its rows of the table say it."""

KERNEL_UNITS = ("fp32", "bf16", "fp16", "int8")
"""Units that a kernel is timed for. fp64 has the same units at half the width."""


@dataclass(frozen=True)
class Cores:
    """The processor as far as it is known, and what the process may use. reason: why there is no microarchitecture."""

    flags: frozenset[str]
    microarchitecture: str
    reason: str
    allowed: Allowance

    def instructions(self, unit: str) -> tuple[str, ...]:
        """Those that compute in a unit here: the fastest, then those that the table has a row for."""
        present = [name for name in WIDEST[unit] if name in self.flags]
        return tuple(name for i, name in enumerate(present) if not i or self.row(unit, name) is not None)

    def row(self, unit: str, instructions: str) -> VectorUnit | None:
        """The table's row, if it has one."""
        rows = vector_units(self.microarchitecture)
        return next((row for row in rows if (row.unit, row.instructions) == (unit, instructions)), None)


def cores() -> Cores:
    """This machine's. Raises Unavailable where nothing says which processor it is."""
    found, allowed = processor(), allowance()
    try:
        return Cores(found.flags, identify(found).name, "", allowed)
    except Unavailable as fault:
        return Cores(found.flags, "", str(fault), allowed)


def issue_rows(
    blank: Ceiling, units: Iterable[str], threads: int, seconds: float, fastest: bool = False
) -> list[Ceiling]:
    """A row for the fastest instructions of each of these units, and for others that the table has.

    blank: what all rows have in common. threads: torch's. seconds: of each kernel. What cannot be measured is a row
    with its reason; where nothing says which processor it is, one row says so. fastest: no other instructions.
    """
    blank = replace(blank, operation=ISSUE, threads=threads)
    try:
        here = cores()
    except Unavailable as fault:
        return [replace(blank, unit=unit, status="unavailable", reason=str(fault)) for unit in dict.fromkeys(units)]
    return [
        _issue_row(replace(blank, unit=unit, instructions=name, shape=name), here, seconds)
        for unit in dict.fromkeys(units)
        for name in here.instructions(unit)[: 1 if fastest else None]
    ]


def _issue_row(blank: Ceiling, here: Cores, seconds: float) -> Ceiling:
    usable = here.allowed.usable_cores(blank.threads or 1)
    blank = replace(blank, cores=usable, microarchitecture=here.microarchitecture)
    unit = here.row(blank.unit, blank.instructions)
    adds = unit.multiply_adds if unit else MULTIPLY_ADDS.get(blank.instructions)
    if adds is None:
        return replace(blank, status="unavailable", reason=f"no width is known of {blank.instructions}")
    others = Neighbours(own_s=_own_s)
    try:
        with compiled_program(blank.instructions) as program:
            rate = issue_rate(program, here.allowed.pinned(blank.threads or 1), seconds)
    except Unavailable as fault:
        return replace(blank, status="unavailable", reason=str(fault))
    peak, reason = derive_peak(unit, usable, rate.clock_hz, rate.per_clock, here.reason or _no_row(blank, here))
    busy = warning(others.used_ratio()).removeprefix("busy: ")
    text = "; ".join(filter(None, (reason, busy)))
    flop = rate.threads * rate.instructions * adds * FLOP_PER_MULTIPLY_ADD
    return replace(
        blank,
        repeats=rate.bursts,
        median_s=rate.burst_s,
        flop=flop,
        flop_per_s=flop / rate.burst_s,
        sm_clock_hz=rate.clock_hz,
        per_clock=rate.per_clock,
        derived_flop_per_s=peak,
        reason=f"note: {text}" if text else "",
    )


def _own_s() -> float:
    """Processor time of this process and of the programs that it has run."""
    return sum(os.times()[:4])


def _no_row(row: Ceiling, here: Cores) -> str:
    what = f"{row.instructions} of {here.microarchitecture}"
    return f"no derived peak: analysis/devices/vector_units.csv has no row for {what}"


def derive_peak(
    unit: VectorUnit | None, usable_cores: float, clock_hz: float, per_clock: float, absent: str
) -> tuple[float | None, str]:
    """(the peak in FLOP/s or None, why there is none or what is doubtful about it).

    unit: the table's row; None: there is none, and `absent` is the reason.
    """
    if unit is None:
        return None, absent
    share = per_clock / float(unit.per_clock)
    what = f"a core issued {per_clock:.3g} {unit.instructions} instructions a clock, the table has {unit.per_clock}"
    if share > MOST_ISSUE_RATIO:
        return None, f"no derived peak: {what}"
    if share < LEAST_RATIO:
        return None, f"no derived peak: {what}: processors may share a core, or this part lacks a unit"
    return unit.peak(usable_cores, clock_hz), f"{what}: others may use its units" if share < NOTED_RATIO else ""
