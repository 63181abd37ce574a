"""What this CPU's cores can do in theory, and what a kernel of independent multiply-adds reaches.

The peak is cores × FLOP a clock × clock: cores that the process may use, FLOP a clock of `analysis.devices.processors`,
the clock of a dependent chain while all of them issue these instructions. The kernel checks the table: where cores
issue more in a clock than a row allows, or much less, there is no peak and the reason says so. The kernel is compiled
on demand; without a compiler there is no clock and hence no peak, and the row says so.

`core_kernels.c` says what a core did: rate and clock. The clock is that of a dependent chain of additions with the same
instructions between them, so that the core has the clock that it has under this load. It is no reading of a counter:
the processor's time stamp counter goes on at a rate of its own. A burst during which the thread was set aside is slow
and stays in the medians.

Not claimed: that any operation of a network reaches the peak. The clock is that of a fraction of a second: under a load
of minutes heat may lower it. Nor that a virtual processor is a core: two that share one show less than the table says.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from analysis.devices.ceilings import ISSUE
from analysis.devices.processors import (
    FLOP_PER_MULTIPLY_ADD,
    MOST_ISSUE_RATIO,
    WIDEST,
    VectorUnit,
    identify,
    vector_units,
)
from measure.device.cpu_identity import Neighbours, allowance, processor, warning
from results.errors import Unavailable, one_line
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


def issue_rows(
    blank: Ceiling, units: Iterable[str], threads: int, seconds: float, fastest: bool = False
) -> list[Ceiling]:
    """A row for the fastest instructions of each of these units, and for others that the table has.

    blank: what all rows have in common. threads: torch's. seconds: of each kernel. What cannot be measured is a row
    with its reason; where nothing says which processor it is, one row says so. fastest: no other instructions.
    """
    blank, units = replace(blank, operation=ISSUE, threads=threads), dict.fromkeys(units)
    try:
        here = processor()
    except Unavailable as fault:
        return [replace(blank, unit=unit, status="unavailable", reason=str(fault)) for unit in units]
    name, unknown, allowed = "", "", allowance()
    try:
        name = identify(here)
    except Unavailable as fault:
        unknown = str(fault)
    blank = replace(blank, cores=allowed.usable_cores(threads), microarchitecture=name)
    table = {(row.unit, row.instructions): row for row in vector_units(name)}
    rows = []
    for unit in units:
        present = [instructions for instructions in WIDEST[unit] if instructions in here.flags]
        others = [] if fastest else [instruction for instruction in present[1:] if (unit, instruction) in table]
        for instructions in present[:1] + others:
            row = replace(blank, unit=unit, instructions=instructions, shape=instructions)
            rows.append(_issue_row(row, table.get((unit, instructions)), unknown, allowed.pinned(threads), seconds))
    return rows


def _issue_row(blank: Ceiling, unit: VectorUnit | None, unknown: str, pinned: Sequence[int], seconds: float) -> Ceiling:
    """unit: the table's row; None: there is none. unknown: why there is no microarchitecture."""
    adds = unit.multiply_adds if unit else MULTIPLY_ADDS.get(blank.instructions)
    if adds is None:
        return replace(blank, status="unavailable", reason=f"no width is known of {blank.instructions}")
    others = Neighbours(own_s=_own_s)
    try:
        with compiled_program(blank.instructions) as program:
            rate = issue_rate(program, pinned, seconds)
    except Unavailable as fault:
        return replace(blank, status="unavailable", reason=str(fault))
    what = f"{blank.instructions} of {blank.microarchitecture}"
    absent = unknown or f"no derived peak: analysis/devices/vector_units.csv has no row for {what}"
    peak, reason = derive_peak(unit, blank.cores or 0.0, rate.clock_hz, rate.per_clock, absent)
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


SOURCE = Path(__file__).with_name("core_kernels.c")

COMPILER_FLAGS: Mapping[str, tuple[str, ...]] = {
    "sse2": (),
    "avx": ("-mavx",),
    "fma": ("-mavx", "-mfma"),
    "avx512f": ("-mavx512f",),
    "avx512_bf16": ("-mavx512f", "-mavx512bf16"),
    "avx512_fp16": ("-mavx512f", "-mavx512fp16"),
    "avx512_vnni": ("-mavx512f", "-mavx512vnni"),
    "avx_vnni": ("-mavx2", "-mavxvnni"),
    "amx_bf16": ("-mavx512f", "-mamx-tile", "-mamx-bf16"),
    "amx_int8": ("-mavx512f", "-mamx-tile", "-mamx-int8"),
    "asimd": (),
    "asimdhp": ("-march=armv8.2-a+fp16",),
    "asimddp": ("-march=armv8.2-a+dotprod",),
    "bf16": ("-march=armv8.2-a+bf16",),
    "i8mm": ("-march=armv8.2-a+i8mm",),
    "sve": ("-march=armv8.2-a+sve",),
}
"""Instructions, as /proc/cpuinfo names them → what the compiler needs for them."""

COMPILE_TIMEOUT_S = 60.0
START_S = 30.0
"""How much longer than its bursts a run may take."""


@dataclass(frozen=True)
class IssueRate:
    """What cores did together. clock_hz: of the chain; per_clock: instructions of one core in one clock; both medians
    over all bursts. burst_s: median time of a burst of `instructions` on each of `threads`. bursts: how many.
    """

    threads: int
    clock_hz: float
    per_clock: float
    instructions: int
    burst_s: float
    bursts: int


@contextmanager
def compiled_program(instructions: str) -> Iterator[Path]:
    """The program for one kind of instruction, until the block ends. Raises Unavailable where it cannot be built."""
    if instructions not in COMPILER_FLAGS:
        raise Unavailable(f"no kernel for {instructions}: expected one of {', '.join(COMPILER_FLAGS)}")
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise Unavailable(f"no C compiler ({compiler[0]}; CC names another): a core's clock and units are not measured")
    with tempfile.TemporaryDirectory(prefix="flopledger-") as folder:
        program = Path(folder) / "core_kernels"
        macro = f"-DKERNEL_{instructions.upper()}"
        command = [*compiler, "-O2", "-pthread", *COMPILER_FLAGS[instructions], macro, "-o", str(program), str(SOURCE)]
        _run(command, COMPILE_TIMEOUT_S, f"the C compiler knows no {instructions}")
        yield program


def issue_rate(program: Path, processors: Sequence[int], seconds: float) -> IssueRate:
    """Independent instructions on these processors at once, one thread pinned to each. Raises Unavailable."""
    pinned = ",".join(map(str, processors))
    text = _run([str(program), "issue", f"{seconds:g}", pinned], seconds + START_S, "the kernel does not run here")
    head, *lines = text.splitlines()
    _, additions, _, instructions = head.split()
    bursts = [tuple(map(float, line.split()[1:])) for line in lines]
    if not bursts:
        raise Unavailable(f"no burst of the kernel ended within {seconds:g} s")
    per_clock = [int(instructions) / kernel_s / (int(additions) / chain_s) for chain_s, kernel_s in bursts]
    return IssueRate(
        threads=len(processors),
        clock_hz=int(additions) / median(chain_s for chain_s, _ in bursts),
        per_clock=median(per_clock),
        instructions=int(instructions),
        burst_s=median(kernel_s for _, kernel_s in bursts),
        bursts=len(bursts),
    )


def _run(command: Sequence[str], timeout_s: float, fault: str) -> str:
    """What a command prints. Raises Unavailable with its own words."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise Unavailable(f"{fault}: {one_line(str(reason), 160)}") from reason
    if ended.returncode:
        words = ended.stderr.strip().splitlines()
        raise Unavailable(f"{fault}: {one_line(words[0], 160) if words else f'it ended with {ended.returncode}'}")
    return ended.stdout
