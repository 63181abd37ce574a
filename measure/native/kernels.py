"""Compiles `core_kernels.c` for one kind of instruction, runs it, and says what a core did: rate and clock.

The clock is that of a dependent chain of additions with the same instructions between them, so that the core has the
clock that it has under this load. It is no reading of a counter: the processor's time stamp counter goes on at
a rate of its own. A burst during which the thread was set aside is slow and stays in the medians.

Not claimed: that a virtual processor is a core. Two that share one core show less than the table says, and so does a
neighbour on the other hardware thread.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from results.errors import Unavailable, one_line

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
