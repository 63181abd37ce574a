"""What libraries take of a device's memory beside the tensors of a step: an allowance, each row with its source.

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

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.records.operations import Operation

KIB = 1024
CUBLAS_BYTES = (2 * 4096 + 16 * 8) * KIB
HOPPER_BYTES = 32 * 1024 * KIB
"""Of one handle, from compute capability 9.0 on; of an unknown device, too."""

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
