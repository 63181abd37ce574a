"""The clock of the core that a thread runs on: what the system says, else how fast a chain of additions runs.

Linux tells it as cpufreq's `scaling_cur_freq`; most virtual machines have none, and the clock in their /proc/cpuinfo is
a constant. There, additions are timed of which each waits for the one before: each takes one cycle on every core of
`analysis/devices/processors.csv` (`core_kernels.c` says which additions do), so that additions a second are the clock.
The time is the difference of a long chain and a short one, the least of some tries each, so that the call is not in it.

Not claimed: the clock under the instructions of a step. Right after wide vector instructions a core that runs additions
alone may have a higher one (docs/benchmarks.md).

Functions of a few instructions in memory of this process: for x86-64 Linux, where no compiler is needed for them.
"""

import ctypes
import functools
import mmap
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from results.errors import Unavailable

ADDITIONS = 64
"""Of a round."""
SHORT, LONG, TRIES = 100, 1300, 3
"""Rounds of the two chains, and how often each is timed: 268,800 additions, which are 90 µs at 3 GHz."""

PROCESSOR = 36
"""Its place in /proc/thread-self/stat (proc(5), field 39) after the name, which ends with the last bracket."""


def core_clock_hz(root: Path = Path("/")) -> float:
    """Of the core that this thread runs on, now. root: where /proc and /sys are. Raises Unavailable with the reason."""
    try:
        text = (root / "proc/thread-self/stat").read_text()
        cpu = int(text.rpartition(")")[2].split()[PROCESSOR])
        return 1000.0 * int((root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq").read_text())
    except (OSError, ValueError, IndexError):
        return chain_hz(_chain())


def chain_hz(chain: Callable[[int], object], now_ns: Callable[[], int] = time.perf_counter_ns) -> float:
    """Additions a second. chain: runs so many rounds of ADDITIONS of them. Raises Unavailable for a clock that stands
    still or goes back."""
    short_ns, long_ns = (min(_taken_ns(chain, rounds, now_ns) for _ in range(TRIES)) for rounds in (SHORT, LONG))
    if not long_ns > short_ns:
        raise Unavailable(f"a chain of {LONG} rounds took {long_ns} ns, one of {SHORT} {short_ns} ns")
    return 1e9 * ADDITIONS * (LONG - SHORT) / (long_ns - short_ns)


def _taken_ns(chain: Callable[[int], object], rounds: int, now_ns: Callable[[], int]) -> int:
    begun_ns = now_ns()
    chain(rounds)
    return now_ns() - begun_ns


def chain_code() -> bytes:
    """A function of x86-64 (called as System V has it) that runs as many rounds of additions as its argument says."""
    round_ = b"\x48\x01\xd0" * ADDITIONS + b"\x48\xff\xc9"  # add rax, rdx; …; dec rcx
    back = -(len(round_) + 6)
    again = b"\x0f\x85" + back.to_bytes(4, "little", signed=True)  # jnz to the first addition
    return (
        b"\x48\x89\xf9\x31\xc0\xba\x03\x00\x00\x00" + round_ + again + b"\xc3"
    )  # mov rcx, rdi; xor eax, eax; mov edx, 3


def _chain() -> Callable[[int], object]:
    try:
        return ctypes.CFUNCTYPE(None, ctypes.c_long)(address_of(chain_code()))
    except Unavailable as fault:
        raise Unavailable(f"no clock in cpufreq, and {fault}") from fault


def address_of(code: bytes) -> int:
    """Of the code, as long as the process lives. Raises Unavailable on another system, and where memory is refused."""
    address, reason = _loaded(code)
    if address is None:
        raise Unavailable(reason)
    return address


@functools.cache
def _loaded(code: bytes) -> tuple[int | None, str]:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None, f"no machine code for {sys.platform} on {platform.machine()}"
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError as fault:
        return None, f"the system refuses memory to run machine code: {fault.strerror}"
    page.write(code)
    first = ctypes.c_char.from_buffer(page)
    _KEPT.append(first)
    return ctypes.addressof(first), ""


_KEPT: list[object] = []
"""What keeps the memory of the code."""
