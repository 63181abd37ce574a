"""Measures the time in which a cache line goes from one processor to another and back (`round_trip_s`, in seconds).

The time shows whether the two processors share a cache now, on which the speed of a step depends. It is about 100 ns
between processors of one last-level cache, and several hundred between others. On a virtual machine the host places the
processors, and may move them at any time without notice (docs/benchmarks.md, "Where the host puts two processors"). Two
threads write to one word in turn, on the first and the last processor that the process may use. Nothing is claimed
about the processors between. The threads run x86-64 instructions that are stored here as bytes, so that no compiler is
needed. This works on Linux and x86-64 only; elsewhere `Unavailable` is raised.
"""

import ctypes
import functools
import mmap
import os
import platform
import sys
import threading
import time
from collections.abc import Callable

from results.errors import Unavailable

_MEMORY: list[object] = []
"""References that keep the memory of machine code alive."""


@functools.cache
def address_of(code: bytes) -> int:
    """Copy machine code into executable memory, and return its address, which is valid as long as the process lives.
    Raises Unavailable on another system, and where memory is refused."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Unavailable(f"no machine code for {sys.platform} on {platform.machine()}")
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError as fault:
        raise Unavailable(f"the system refuses memory to run machine code: {fault.strerror}") from fault
    page.write(code)
    _MEMORY.append(ctypes.c_char.from_buffer(page))
    return ctypes.addressof(_MEMORY[-1])  # type: ignore[arg-type]


ROUNDS, TRIES = 100, 4
"""Round trips in one timing, and number of timings. The shortest counts, since another task may interrupt a timing."""

MOST_LOOKS = 1 << 26
"""Maximum number of times that a thread reads the word, about 20 ms, before it gives up waiting for the other one."""

MOST_WAIT_S = 0.02
"""Longest time for which a thread waits for the other one to be ready."""

Bounce = Callable[[int], int]
"""Runs a number of rounds in one of the two threads; returns how many were left when it gave up, or 0."""


def ping_code() -> bytes:
    """Return the x86-64 code (System V calling convention) of a function of the word's address and a number of rounds.
    In each round it sets 1 and waits for 0."""
    return _ROUNDS_LEFT + _STORE % 1 + _WAIT % (10, 0) + _NEXT


def pong_code() -> bytes:
    """Return the other side: in each round it waits for 1 and sets 0."""
    return _ROUNDS_LEFT + _WAIT % (16, 1) + _STORE % 0 + _NEXT


_ROUNDS_LEFT = b"\x48\x89\xf0"  # mov rax, rsi
_STORE = b"\xc7\x07%c\x00\x00\x00"  # mov dword [rdi], value
_WAIT = b"\xb9" + MOST_LOOKS.to_bytes(4, "little") + b"\xff\xc9\x74%c\x83\x3f%c\x75\xf7"
"""mov ecx, MOST_LOOKS; 1: dec ecx; jz to the end; cmp dword [rdi], value; jne 1"""
_NEXT = b"\x48\xff\xc8\x75\xe7\xc3"  # dec rax; jnz to what follows _ROUNDS_LEFT; ret


def round_trip_s() -> float:
    """Return the seconds of a round trip between the first and the last processor that this process may use. Measuring
    takes about 0.5 ms of both of them, and 20 ms where one gives up waiting for the other.

    Raises Unavailable with the reason: a single processor, another system, or a thread that did not run.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise Unavailable("this system does not say which processors a process may use")
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise Unavailable("expected two processors, the process may use only one")
    word = (ctypes.c_char * 256)()  # so large that nothing else is in its cache line
    address = ctypes.addressof(word) + 128 - ctypes.addressof(word) % 128
    ping, pong = (_function(code, address, word) for code in (ping_code(), pong_code()))
    times_s: list[float] = []
    ready = threading.Barrier(2, timeout=MOST_WAIT_S)  # neither reads the word while the other may need its processor
    second = threading.Thread(target=_run_on, args=(processors[-1], ready, lambda: pong(ROUNDS * TRIES)))
    first = threading.Thread(target=_run_on, args=(processors[0], ready, lambda: times_s.append(shortest_s(ping))))
    try:
        second.start()
        first.start()
    except RuntimeError as fault:  # no further thread may begin
        raise Unavailable(f"a thread could not be started: {fault}") from fault
    for thread in (second, first):
        thread.join()
    if not times_s:
        raise Unavailable("the two threads did not run at the same time")
    return times_s[0]


def shortest_s(ping: Bounce, now_ns: Callable[[], int] = time.perf_counter_ns) -> float:
    """Return the seconds of a round trip in the shortest of TRIES. Raises Unavailable where a round was given up."""
    times_ns = []
    for _ in range(TRIES):
        begun_ns = now_ns()
        if ping(ROUNDS):
            raise Unavailable("a thread did not answer")
        times_ns.append(now_ns() - begun_ns)
    return min(times_ns) / ROUNDS / 1e9


def _run_on(processor: int, ready: threading.Barrier, task: Callable[[], object]) -> None:
    """Run the task on one processor, once both threads are ready; do nothing if the system refuses that, or the other
    thread does not run."""
    try:
        os.sched_setaffinity(0, {processor})
        ready.wait()
        task()
    except (OSError, Unavailable, threading.BrokenBarrierError):
        return


def _function(code: bytes, address: int, word: object) -> Bounce:
    """Make a Python function of machine code. word: the memory at the address, which the function keeps alive."""
    function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_long)(address_of(code))
    return lambda rounds, _word=word: function(address, rounds)  # type: ignore[misc]
