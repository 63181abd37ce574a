"""Computes the device memory of a training step beyond its tensors: what the allocator reserves, and workspaces.

`replay` takes a step's storages and returns `Reserved`: live ≤ allocated ≤ reserved. It follows the published rules of
PyTorch's caching allocator for CUDA (torch 2.11 to 2.15, `CUDACachingAllocator.cpp`, default settings, one stream).
`allowance` takes operations and returns cuBLAS's workspace (`CublasHandlePool.cpp`). This is 2 × 4096 + 16 × 8 KiB per
thread, and 32 MiB from compute capability 9.0 on. `tensors_peak` takes a recorded history of allocations, and returns
the peak bytes of tensors without workspaces. Not claimed: memory that earlier steps left cached, the device's context,
and workspaces of cuDNN and oneDNN.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.records.counts import Operation, Storage

BLOCK = 512
SMALL = 2**20
"""Requests of up to this many bytes come from the pool of small segments."""
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
"""Requests of at least this many bytes get a separate segment."""
OWN_ROUNDING = 2 * 2**20


@dataclass(frozen=True)
class Reserved:
    """Peak bytes of the allocator: allocated in blocks (`memory_allocated`), and reserved in segments. segments: number
    of segments."""

    allocated_bytes: int
    reserved_bytes: int
    segments: int


def rounded(nbytes: int) -> int:
    """Return the bytes of the smallest block that a request can have; 0 for an empty request, which needs no block."""
    return -(-nbytes // BLOCK) * BLOCK


def segment(nbytes: int) -> int:
    """Return the bytes of the segment that a request creates if no free block fits."""
    if nbytes <= SMALL:
        return SMALL_SEGMENT
    if nbytes < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-nbytes // OWN_ROUNDING) * OWN_ROUNDING


class Pools:
    """Segments and their free blocks. The caller of `take` numbers the blocks.

    A request is rounded up to 512 bytes. One of up to 1 MiB is served from small segments of 2 MiB, one below 10 MiB
    from large ones of 20 MiB, a larger one from a separate segment. The smallest free block that fits is taken, and
    split if at least 512 bytes (small) or more than 1 MiB (large) are left. A freed block joins its free neighbours. A
    segment stays reserved. Among equal blocks, PyTorch chooses by address, this class by age.
    """

    def __init__(self) -> None:
        self.reserved = self.segments = self.allocated = 0
        self.blocks: dict[int, tuple[int, int, int]] = {}  # number → segment, in order of making; start; size
        self._free: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}  # small? → size, segment, start
        self._small: list[bool] = []  # of each segment

    def take(self, number: int, nbytes: int) -> None:
        """Allocate a block for a request of nbytes."""
        size = rounded(nbytes)
        if not size:
            return
        small = size <= SMALL
        free = self._free[small]
        index = bisect_left(free, (size,))
        if index == len(free):
            free.append((segment(size), self.segments, 0))
            self.reserved += segment(size)
            self.segments += 1
            self._small.append(small)
        block, where, start = free.pop(index)
        left = block - size
        taken = size if (left >= BLOCK if small else left > SMALL) else block
        if block > taken:  # the rest stays free behind the block, where it can join free neighbours later
            insort(free, (block - taken, where, start + taken))
        self.blocks[number] = where, start, taken
        self.allocated += taken

    def give(self, number: int) -> None:
        """Free a block; an empty request has no block."""
        where, start, size = self.blocks.pop(number, (0, 0, 0))
        if not size:
            return
        self.allocated -= size
        free = self._free[self._small[where]]
        neighbours = [block for block in free if block[1] == where and start in (block[2] + block[0], block[2] - size)]
        for block in neighbours:
            free.remove(block)
            start, size = min(start, block[2]), size + block[0]
        insort(free, (size, where, start))


def replay(storages: Iterable[Storage]) -> Reserved:
    """Return the peak bytes that a step needs of the allocator. Storages of unknown size are left out.

    An operation's inputs and outputs are alive together: its dead storages are freed after its new ones are allocated.
    """
    events = []
    for storage in storages:
        if storage.nbytes is not None:
            events.append((storage.born_index, False, storage.id, storage.nbytes))
            if storage.died_index is not None:
                events.append((storage.died_index, True, storage.id, 0))
    pools, allocated = Pools(), 0
    for _, is_death, number, nbytes in sorted(events):
        if is_death:
            pools.give(number)
        else:
            pools.take(number, nbytes)
            allocated = max(allocated, pools.allocated)
    return Reserved(allocated, pools.reserved, pools.segments)


_WORKSPACE = re.compile(r"workspace|cudnn|cublas", re.IGNORECASE)
_CUDNN_TENSORS = re.compile(r"at::native::cudnn_batch_norm|_cudnn_rnn|reserve", re.IGNORECASE)
"""cuDNN functions whose outputs are tensors."""
_EMPTY = re.compile(r"at::(detail|native)::empty|at::empty")
"""Functions by which torch allocates every tensor; libraries' own memory does not pass through them."""
_GRADIENTS = "at::native::convolution_backward"
"""The innermost named function around cuDNN's requests for a convolution's gradients."""
_CUBLAS = "at::cuda::blas::"
"""Functions that allocate their workspace as a tensor of bytes, and no output."""

ALLOCATED, FREED = "alloc", "free_completed"


def tensors_peak(history: Sequence[Mapping[str, Any]], since: int = 0) -> int:
    """Return the peak bytes requested by tensors, from entry `since` on."""
    living: dict[int, int] = {}
    tensors = most = 0
    for position, entry in enumerate(history):
        if entry["action"] == ALLOCATED and not _is_workspace(entry.get("frames", ())):
            living[entry["addr"]] = entry["size"]
            tensors += entry["size"]
        elif entry["action"] == FREED:
            tensors -= living.pop(entry["addr"], 0)
        if position >= since:
            most = max(most, tensors)
    return most


def _is_workspace(frames: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a library requested the memory. frames: of the allocation, the innermost first; those up to the
    operator's function (at::native or at::_ops) decide."""
    names = [str(frame.get("name", "")) for frame in frames]
    if any(map(_EMPTY.search, names)):
        return any(name.startswith(_CUBLAS) for name in names)
    for name in names:
        if name.startswith(_GRADIENTS):
            return True
        if name.startswith(("at::_ops::", "at::meta::", "torch::autograd::")):
            return False
        if _WORKSPACE.search(name) and not _CUDNN_TENSORS.search(name):
            return True
    return False


CUBLAS_BYTES = (2 * 4096 + 16 * 8) * 1024
HOPPER_BYTES = 32 * 2**20
"""Workspace of one handle, from compute capability 9.0 on and for an unknown device."""

_PRODUCTS = ("matmul", "attention", "recurrent")
"""Kinds of operations that may call cuBLAS."""


@dataclass(frozen=True)
class Workspace:
    """Workspace of one library. source: where the number comes from."""

    library: str
    nbytes: int
    source: str


def allowance(
    operations: Sequence[Operation], device: str, compute_capability: str | None = None
) -> tuple[Workspace, ...]:
    """Return the workspaces to add to a step's tensors. device: "cuda" or "cpu". compute_capability: "8.0"; None:
    unknown."""
    if device != "cuda":
        return ()
    threads = {operation.phase in ("backward", "recompute") for operation in operations if operation.kind in _PRODUCTS}
    if not threads:
        return ()
    is_older = compute_capability is not None and compute_capability[0].isdigit() and float(compute_capability) < 9
    nbytes = CUBLAS_BYTES if is_older else HOPPER_BYTES
    return (Workspace("cuBLAS", len(threads) * nbytes, f"allowance: torch's default, threads: {len(threads)}"),)


def unknown_memory(operations: Sequence[Operation], device: str) -> str:
    """Return one line on the memory that a step needs in addition and that is unknown; "" if there is none."""
    kinds = {operation.kind for operation in operations}
    if device == "cuda":
        cudnn = kinds & {"convolution", "recurrent"}
        return "the workspaces of cuDNN's kernels are not known in advance, and count as 0" if cudnn else ""
    heavy = kinds & {"convolution", "recurrent", "matmul", "attention", "normalization"}
    return "the workspaces of a CPU's kernels are not known in advance, and count as 0" if heavy else ""
