"""Compiles `core_kernels.c` for one kind of instruction, runs it, and says what a core did: rate and clock.

The clock is that of a dependent chain of additions with the same instructions between them, so that the core has the
clock that it has under this load. It is no reading of a counter: the processor's time stamp counter goes on at
a rate of its own. A burst during which the thread was set aside is slow and stays in the medians.

Not claimed: that a virtual processor is a core. Two that share one core show less than the table says, and so does a
neighbour on the other hardware thread.

The clock of the core that a thread runs on: what the system says, else how fast a chain of additions runs.

Linux tells it as cpufreq's `scaling_cur_freq`; most virtual machines have none, and the clock in their /proc/cpuinfo is
a constant. There, additions are timed of which each waits for the one before: each takes one cycle on every core of
`analysis/devices/processors.csv` (`core_kernels.c` says which additions do), so that additions a second are the clock.
The time is the difference of a long chain and a short one, the least of some tries each, so that the call is not in it.

Not claimed: the clock under the instructions of a step. Right after wide vector instructions a core that runs additions
alone may have a higher one (docs/benchmarks.md).

Functions of a few instructions in memory of this process: for x86-64 Linux, where no compiler is needed for them.

`round_trip_s` is how long a cache line takes from one processor to another and back: whether the two share a cache now.
Two threads, each kept on a processor of its own, write to one word in turn. Between processors of one last-level cache
that takes about 100 ns, between others several hundred. On a virtual machine the host decides which it is, changes it
at any time, and says nothing of it (docs/benchmarks.md, "Where the host puts two processors"). The two are the first
and the last of the processors that the process may use; how far those between them are is not claimed.
"""

import ctypes
import functools
import mmap
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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


ROUNDS, TRIES = 100, 4
"""Round trips that are timed together, and how often. The shortest counts: another task may interrupt one."""

MOST_LOOKS = 1 << 26
"""How often a thread looks at the word, about 20 ms, before it gives up waiting for the other one."""

MOST_WAIT_S = 0.02
"""How long a thread that is ready waits for the other one to be."""

Bounce = Callable[[int], int]
"""Runs so many rounds of one of the two threads; the result is how many it gave up."""


def ping_code() -> bytes:
    """A function of x86-64 (called as System V has it) of the word's address and a number of rounds: in each, it sets 1
    and waits for 0."""
    return _ROUNDS_LEFT + _STORE % 1 + _WAIT % (10, 0) + _NEXT


def pong_code() -> bytes:
    """The same that waits for 1 and sets 0."""
    return _ROUNDS_LEFT + _WAIT % (16, 1) + _STORE % 0 + _NEXT


_ROUNDS_LEFT = b"\x48\x89\xf0"  # mov rax, rsi
_STORE = b"\xc7\x07%c\x00\x00\x00"  # mov dword [rdi], value
_WAIT = b"\xb9" + MOST_LOOKS.to_bytes(4, "little") + b"\xff\xc9\x74%c\x83\x3f%c\x75\xf7"
"""mov ecx, MOST_LOOKS; 1: dec ecx; jz to the end; cmp dword [rdi], value; jne 1"""
_NEXT = b"\x48\xff\xc8\x75\xe7\xc3"  # dec rax; jnz to what follows _ROUNDS_LEFT; ret


def round_trip_s() -> float:
    """Between the first and the last processor that this process may use, now. It takes about 0.5 ms of both of them,
    and 20 ms where one gives up waiting for the other.

    Raises Unavailable with the reason: one processor alone, another system, or a thread that did not run.
    """
    processors = _processors()
    word = (ctypes.c_char * 256)()  # so that the line is of nothing else
    address = ctypes.addressof(word) + 128 - ctypes.addressof(word) % 128
    ping, pong = (_function(code, address, word) for code in (ping_code(), pong_code()))
    taken: list[float] = []
    both = threading.Barrier(2, timeout=MOST_WAIT_S)  # neither looks at the word while the other may need its processor
    second = threading.Thread(target=_on, args=(processors[-1], both, lambda: pong(ROUNDS * TRIES)))
    first = threading.Thread(target=_on, args=(processors[0], both, lambda: taken.append(shortest_s(ping))))
    try:
        second.start()
        first.start()
    except RuntimeError as fault:  # no further thread may begin
        raise Unavailable(f"no thread for it: {fault}") from fault
    for thread in (second, first):
        thread.join()
    if not taken:
        raise Unavailable("one of two threads did not run beside the other")
    return taken[0]


def shortest_s(ping: Bounce, now_ns: Callable[[], int] = time.perf_counter_ns) -> float:
    """Seconds of a round trip in the shortest of TRIES. Raises Unavailable where a round was given up."""
    times_ns = []
    for _ in range(TRIES):
        begun_ns = now_ns()
        if ping(ROUNDS):
            raise Unavailable("a thread did not answer")
        times_ns.append(now_ns() - begun_ns)
    return min(times_ns) / ROUNDS / 1e9


def _on(processor: int, both: threading.Barrier, work: Callable[[], object]) -> None:
    """Work of this thread on one processor; nothing where the system refuses that, or the other thread did not run."""
    try:
        os.sched_setaffinity(0, {processor})
        both.wait()
        work()
    except (OSError, Unavailable, threading.BrokenBarrierError):
        return


def _function(code: bytes, address: int, word: object) -> Bounce:
    """word: what is at the address; it is there as long as a thread may run this, whatever ends the caller."""
    function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_long)(address_of(code))
    return lambda rounds, _word=word: function(address, rounds)  # type: ignore[misc]


def _processors() -> list[int]:
    if not hasattr(os, "sched_getaffinity"):
        raise Unavailable("this system does not say which processors a process may use")
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise Unavailable("the process may use one processor alone")
    return found
