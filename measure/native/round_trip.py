"""How long a cache line takes from one processor to another and back: whether the two share a cache now.

Two threads, each kept on a processor of its own, write to one word in turn: the first sets it to 1 and waits for 0, the
second waits for 1 and sets it to 0. Between processors of one last-level cache that takes about 100 ns, between others
several hundred. On a virtual machine the host decides which it is, changes it at any time, and says nothing of it
(docs/benchmarks.md, "Where the host puts two processors").

The two are the first and the last of the processors that the process may use. Not claimed: how far those between them
are, and that the threads of a step ran on these.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable

from measure.native.core_clock import address_of
from results.errors import Unavailable

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
