"""Makes the C library keep the memory that a step frees, so that a step on a CPU is not slowed by page faults.

`set_malloc` takes a cell's setting and calls `retain_freed_memory`, after which blocks come from a heap that never
shrinks. By default glibc gives a large block back as soon as it is freed (mallopt(3): M_MMAP_THRESHOLD,
M_TRIM_THRESHOLD). Each page of the next block is then a page fault, in which the system clears the page and no FLOP is
done. `extend_heap` enlarges the heap before anything is timed and returns the bytes added. Otherwise a large gradient
may fit into no free part, and the heap grows in a later step. (In VGG-11, batch 8, that took 0.7 s of a step of 1.9 s
for 411 MB.) Not claimed: that a process needs no more memory this way, since freed blocks of other sizes may lie in the
heap unused.
"""

import ctypes
import platform
import resource
from pathlib import Path

from results.errors import Unavailable
from results.process import free_bytes
from results.records.cell import RETAIN

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Parameters of mallopt, as malloc.h has them."""

_NEVER_TRIM = -1
"""M_TRIM_THRESHOLD that never trims: the largest size_t (mallopt(3))."""

_PROBE_BYTES = 64 << 20
"""A block that glibc never keeps by itself: its largest threshold is 32 MiB (DEFAULT_MMAP_THRESHOLD_MAX)."""

_MOST_BLOCKS = 64
"""Maximum number of holes of the heap that are filled to reach its end."""

_MOST_ANEW = 0.25
"""Page faults on more than this share of a freed block's pages show that the block was given back to the system."""


def retain_freed_memory() -> None:
    """Keep in this process the memory that this thread frees.

    Call it once, in the main thread, and train there: glibc has other heaps for other threads, which still give large
    blocks back. It sets M_TRIM_THRESHOLD and M_MMAP_MAX of glibc (mallopt(3)) for the life of the process. Then it
    frees a block of 64 MiB to see that the block is kept.

    Raises Unavailable, in one line, where the library is not glibc, refuses, or still gives the block back.
    """
    library, _version = platform.libc_ver()
    if library != "glibc":
        raise Unavailable(f"expected glibc, got {library or 'another C library'}")
    c = ctypes.CDLL(None)
    if not (c.mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM) and c.mallopt(_M_MMAP_MAX, 0)):
        raise Unavailable("mallopt refused M_TRIM_THRESHOLD or M_MMAP_MAX")
    ratio = faults_of_a_second_block(c) * resource.getpagesize() / _PROBE_BYTES
    if ratio > _MOST_ANEW:
        raise Unavailable(f"{ratio:.0%} of a freed block was still given back to the system")


def set_malloc(setting: str) -> None:
    """Set the C library's allocator to a cell's setting (`MALLOC_SETTINGS`). Raises Unavailable where that fails."""
    if setting != RETAIN:
        return
    try:
        retain_freed_memory()
    except Unavailable as fault:
        raise Unavailable(f"freed memory is not retained: {fault}; FLOPLEDGER_MALLOC=default skips this") from fault


def extend_heap(ratio: float) -> int:
    """Make room at the end of the heap and write to it, so that using it later causes no page fault. Call it after
    `retain_freed_memory`.

    ratio: room ÷ the process's resident memory (RSS). The room is at most half of the memory that the machine can still
    give. Returns how many bytes of new memory were written to: 0 where enough was free at the end of the heap, or where
    the sizes are not known.
    """
    bytes_ = min(int(ratio * _resident_bytes()), (free_bytes() or 0) // 2)
    if not bytes_:
        return 0
    c = _with_types(ctypes.CDLL(None))
    c.sbrk.restype, c.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    blocks: list[int] = []
    end, new = c.sbrk(0) or 0, 0
    while len(blocks) < _MOST_BLOCKS and not new and (block := c.malloc(bytes_)):
        blocks.append(block)  # fill holes until a block lies at the end
        new = min(max(0, block + bytes_ - end), bytes_)
    if new:
        ctypes.memset(blocks[-1] + bytes_ - new, 1, new)
    for block in blocks:
        c.free(block)
    return new


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _with_types(c: ctypes.CDLL) -> ctypes.CDLL:
    c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    return c


def faults_of_a_second_block(c: ctypes.CDLL) -> int:
    """Return the page faults of writing a block of 64 MiB after another one was written and freed. Raises
    Unavailable."""
    _with_types(c)
    faults = 0
    for _ in range(2):
        block = c.malloc(_PROBE_BYTES)
        if not block:
            raise Unavailable(f"no memory for a block of {_PROBE_BYTES >> 20} MiB")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        ctypes.memset(block, 1, _PROBE_BYTES)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        c.free(block)
    return faults
