"""What PyTorch's caching allocator for CUDA would reserve for a step: its published rules run over the ledger.

The rules are those of torch's `c10/cuda/CUDACachingAllocator.cpp` and of "CUDA semantics: memory management" in its
documentation, with their default settings (no expandable segments, no rounding to powers of two, one stream), the same
in torch 2.11 and 2.15 (`c10/core/AllocatorConfig.h`). Histories that others recorded on a GPU make the same segments
(`tests/test_caching_allocator_sequences.py`). The rules:

* a request is rounded up to a multiple of 512 bytes;
* a request of up to 1 MiB is served from small segments of 2 MiB, one below 10 MiB from large ones of 20 MiB, a larger
  one from a segment of its own, rounded up to 2 MiB;
* the smallest free block of the pool that is large enough is taken (the first of equals) and split if 512 bytes (small)
  or more than 1 MiB (large) are left; what is not split counts as allocated; a freed block joins its free neighbours;
  a segment stays reserved.

`replay` takes the ledger's storages through these rules: those that were there before the step first, in order of
number. So live ≤ allocated ≤ reserved. Not claimed: what earlier steps left cached, what kernels and libraries ask for
themselves, the device's context, and the addresses of segments, which decide among free blocks of one size. A device
out of memory frees cached segments before it fails: a step that fits may be one whose reserved bytes here do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.footprint import BEFORE
from results.records import Storage

BLOCK = 512
SMALL = 2**20
"""Requests of up to this many bytes come from the pool of small segments."""
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
"""Requests from here on have a segment of their own."""
OWN_ROUNDING = 2 * 2**20


@dataclass(frozen=True)
class Reserved:
    """Bytes at their highest. allocated: of blocks (`memory_allocated`); reserved: of segments; segments: how many."""

    allocated_bytes: int
    reserved_bytes: int
    segments: int


@dataclass(slots=True)
class _Free:
    """A free stretch of a segment."""

    start: int
    size: int


def rounded(nbytes: int) -> int:
    """The bytes of the smallest block that a request can have; 0 for nothing, which asks for no block."""
    return -(-nbytes // BLOCK) * BLOCK


def segment(nbytes: int) -> int:
    """The bytes of the segment that a request makes if no free block will do."""
    if nbytes == 0:
        return 0
    if nbytes <= SMALL:
        return SMALL_SEGMENT
    if nbytes < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-nbytes // OWN_ROUNDING) * OWN_ROUNDING


class Pools:
    """Segments, and what of them is free. Every block is known by the number that its caller gave it."""

    def __init__(self) -> None:
        self.reserved = 0
        self.segments = 0
        self.allocated = 0
        self._free: dict[int, list[_Free]] = {}  # segment → free stretches, in order of address
        self._small: dict[int, bool] = {}
        self._blocks: dict[int, tuple[int, int, int]] = {}  # number → segment, start, size

    def take(self, number: int, nbytes: int) -> None:
        """Give a block to a request of nbytes."""
        size = rounded(nbytes)
        if not size:
            return
        small = size <= SMALL
        fits = [
            (free.size, where, free.start)
            for where, stretches in self._free.items()
            if self._small[where] == small
            for free in stretches
            if free.size >= size
        ]
        _found, where, start = min(fits) if fits else self._grow(size, small)
        stretches = self._free[where]
        free = next(each for each in stretches if each.start == start)
        left = free.size - size
        taken = size if (left >= BLOCK if small else left > SMALL) else free.size
        free.start, free.size = start + taken, free.size - taken
        if not free.size:
            stretches.remove(free)
        self._blocks[number] = where, start, taken
        self.allocated += taken

    def place(self, number: int) -> tuple[int, int, int]:
        """Where a block is: (segment, in the order of their making; its start there; its size). Raises KeyError."""
        return self._blocks[number]

    def give(self, number: int) -> None:
        """Take a block back; it joins the free stretches beside it."""
        if number not in self._blocks:  # of a request of nothing
            return
        where, start, size = self._blocks.pop(number)
        self.allocated -= size
        stretches = sorted([*self._free[where], _Free(start, size)], key=lambda each: each.start)
        joined = stretches[:1]
        for each in stretches[1:]:
            if joined[-1].start + joined[-1].size == each.start:
                joined[-1].size += each.size
            else:
                joined.append(each)
        self._free[where] = joined

    def _grow(self, size: int, small: bool) -> tuple[int, int, int]:
        nbytes, where = segment(size), self.segments
        self.reserved += nbytes
        self.segments += 1
        self._free[where], self._small[where] = [_Free(0, nbytes)], small
        return nbytes, where, 0


def replay(storages: Iterable[Storage], operations: int) -> Reserved:
    """What a step of so many operations needs of the allocator. Storages of unknown size are left out."""
    known = sorted((each for each in storages if each.nbytes is not None), key=lambda each: (each.born_index, each.id))
    pools, allocated = Pools(), 0
    born: dict[int, list[Storage]] = {}
    died: dict[int, list[int]] = {}
    for each in known:
        born.setdefault(each.born_index, []).append(each)
        if each.died_index is not None:
            died.setdefault(each.died_index, []).append(each.id)
    for index in range(BEFORE, operations):
        for each in born.get(index, ()):
            pools.take(each.id, each.nbytes)
        allocated = max(allocated, pools.allocated)
        for number in died.get(index, ()):
            pools.give(number)
    return Reserved(allocated, pools.reserved, pools.segments)
