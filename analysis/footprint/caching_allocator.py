"""What PyTorch's caching allocator for CUDA would reserve for a step: its published rules run over the ledger.

The rules are those of torch's `c10/cuda/CUDACachingAllocator.cpp` and of "CUDA semantics: memory management" in its
documentation, with their default settings (no expandable segments, no rounding to powers of two, one stream), the same
in torch 2.11 and 2.15 (`c10/core/AllocatorConfig.h`). Histories that others recorded on a GPU make the same segments
(`tests/analysis/footprint/test_caching_allocator.py`). The rules:

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

What of a device's memory is tensors and not libraries' workspaces, from the history of PyTorch's CUDA allocator.

The history is `torch.cuda.memory._snapshot()["device_traces"][i]`, recorded from before the model was made, with
stacks: entries with action, addr, size (as it was asked for, without rounding) and frames. A workspace is what a
function of cuBLAS's or cuDNN's asked the allocator for: one of the frames says so, but for a convolution's gradients,
whose functions have no symbols in PyTorch's builds: there it is what did not come through `empty`. What did is a
tensor, also where torch's own `cudnn_convolution` made it, its output. Pure: made-up recordings will do.

Not claimed: that each version of torch keeps the names of these functions. What has no symbols is taken for a tensor's.

What libraries take of a device's memory beside the tensors of a step: an allowance, each row with its source.

On CUDA, cuBLAS has a workspace for each of its handles, of which torch makes one a thread: the forward pass runs on
one thread, the backward pass on autograd's. torch (aten/src/ATen/cuda/CublasHandlePool.cpp; "CUDA semantics: cuBLAS
workspaces" in its documentation) takes it from the caching allocator and keeps it: `:4096:2:16:8`, that is
2 × 4096 + 16 × 8 KiB, and 32 MiB from compute capability 9.0 on; `CUBLAS_WORKSPACE_CONFIG` changes that.

Histories that others published agree: one block of 33,554,432 bytes in one, two of one size for the two threads of a
training step in another, whose torch of 2022 took 4 MiB each. A product with a bias takes 1 MiB
more for cublasLt while it runs, which is not in the allowance.

Not claimed: cuDNN's and oneDNN's, which are not known before. cuDNN takes what its algorithms need where there is room,
and an algorithm that needs less where there is none. Versions of torch whose cuBLAS allocates for itself have the same
bytes outside of the caching allocator.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.footprint.live_bytes import BEFORE
from results.records.counts import Operation, Storage

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
        self._free: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}  # small? → size, segment, start
        self._begins: dict[tuple[int, int], int] = {}  # segment and start of what is free → size
        self._ends: dict[tuple[int, int], int] = {}  # segment and end of it → size
        self._small: list[bool] = []  # of each segment
        self.blocks: dict[int, tuple[int, int, int]] = {}  # number → segment, in order of making; start; size

    def take(self, number: int, nbytes: int) -> None:
        """Give a block to a request of nbytes."""
        size = rounded(nbytes)
        if not size:
            return
        small = size <= SMALL
        free = self._free[small]
        # Sorted by size, then by segment and start: the first that is large enough is the best fit, as in the original,
        # whose set is ordered by size and address.
        at = bisect_left(free, (size,))
        block, where, start = free[at] if at < len(free) else self._grow(size, small)
        self._leave(block, where, start)
        left = block - size
        # The request gets the beginning of the block, as in the original, and the rest stays free behind it: which end
        # it is decides what the rest can join later.
        # A remainder of up to 1 MiB of a large segment is not split off: no request of the large pool could use it.
        taken = size if (left >= BLOCK if small else left > SMALL) else block
        if block > taken:
            self._add(block - taken, where, start + taken)
        self.blocks[number] = where, start, taken
        self.allocated += taken

    def give(self, number: int) -> None:
        """Take a block back; it joins the free stretches beside it."""
        if number not in self.blocks:  # of a request of nothing
            return
        where, start, size = self.blocks.pop(number)
        self.allocated -= size
        if after := self._begins.get((where, start + size)):
            self._leave(after, where, start + size)
            size += after
        if before := self._ends.get((where, start)):
            start -= before
            self._leave(before, where, start)
            size += before
        self._add(size, where, start)

    def _grow(self, size: int, small: bool) -> tuple[int, int, int]:
        nbytes, where = segment(size), self.segments
        self.reserved += nbytes
        self.segments += 1
        self._small.append(small)
        self._add(nbytes, where, 0)
        return nbytes, where, 0

    def _add(self, size: int, where: int, start: int) -> None:
        insort(self._free[self._small[where]], (size, where, start))
        self._begins[where, start] = self._ends[where, start + size] = size

    def _leave(self, size: int, where: int, start: int) -> None:
        free = self._free[self._small[where]]
        del free[bisect_left(free, (size, where, start))]
        del self._begins[where, start], self._ends[where, start + size]


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
    for index in range(BEFORE, operations):  # BEFORE: what was there before the first operation
        for each in born.get(index, ()):
            pools.take(each.id, each.nbytes)
        # Before what dies here is given back: an operation's inputs and outputs are alive at the same time.
        allocated = max(allocated, pools.allocated)
        for number in died.get(index, ()):
            pools.give(number)
    return Reserved(allocated, pools.reserved, pools.segments)


_WORKSPACE = re.compile(r"workspace|cudnn|cublas", re.IGNORECASE)
_KEPT = re.compile(r"at::native::cudnn_batch_norm|_cudnn_rnn|reserve", re.IGNORECASE)
"""Functions of cuDNN whose outputs are tensors."""
_EMPTY = re.compile(r"at::(detail|native)::empty|at::empty")
"""The functions by which torch makes every tensor; libraries' own memory does not come through them."""
_GRADIENTS = "at::native::convolution_backward"
"""The innermost function with a name around what cuDNN asks for to calculate a convolution's gradients."""
_CUBLAS = "at::cuda::blas::"
"""What makes its workspace as a tensor, of bytes: no output is made there."""

ALLOCATED, FREED = "alloc", "free_completed"


def tensors_peak(history: Sequence[Mapping[str, Any]], since: int = 0) -> int:
    """The most bytes that were asked for by tensors, from entry `since` on."""
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
    """Whether a library asked: the innermost frames up to the operator's own, which is at::native's or at::_ops'."""
    names = [str(frame.get("name", "")) for frame in frames]
    if any(map(_EMPTY.search, names)):
        return any(name.startswith(_CUBLAS) for name in names)
    for name in names:
        if name.startswith(_GRADIENTS):
            return True
        if name.startswith(("at::_ops::", "at::meta::", "torch::autograd::")):
            return False
        if _WORKSPACE.search(name) and not _KEPT.search(name):
            return True
    return False


KIB = 1024
CUBLAS_BYTES = (2 * 4096 + 16 * 8) * KIB
HOPPER_BYTES = 32 * 1024 * KIB
"""Workspace of one handle, from compute capability 9.0 on and for an unknown device."""

SOURCE = "allowance: torch's default, threads: {}"

_PRODUCTS = ("matmul", "attention", "recurrent")
"""Kinds of operations that may call cuBLAS."""


@dataclass(frozen=True)
class Workspace:
    """What one library takes. source: of the number."""

    library: str
    nbytes: int
    source: str


def allowance(
    operations: Sequence[Operation], device: str, compute_capability: str | None = None
) -> tuple[Workspace, ...]:
    """What is to be added to a step's tensors. device: "cuda" or "cpu". compute_capability: "8.0"; None: not known."""
    if device != "cuda":
        return ()
    threads = {operation.phase in ("backward", "recompute") for operation in operations if operation.kind in _PRODUCTS}
    if not threads:
        return ()
    return (Workspace("cuBLAS", len(threads) * _handle_bytes(compute_capability), SOURCE.format(len(threads))),)


def _handle_bytes(compute_capability: str | None) -> int:
    if compute_capability is None or not compute_capability[0].isdigit():
        return HOPPER_BYTES
    return HOPPER_BYTES if float(compute_capability) >= 9 else CUBLAS_BYTES


def unforeseen(operations: Sequence[Operation], device: str) -> str:
    """What is known to come on top without a number, in one line; "" for nothing."""
    kinds = {operation.kind for operation in operations}
    if device == "cuda":
        cudnn = kinds & {"convolution", "recurrent"}
        return "what cuDNN's kernels take for themselves is not known before: 0 here" if cudnn else ""
    heavy = kinds & {"convolution", "recurrent", "matmul", "attention", "normalization"}
    return "what kernels take for themselves on a CPU is not known before: 0 here" if heavy else ""
