"""What libraries take of a device's memory beside the tensors of a step: an allowance, each row with its source.

On CUDA, cuBLAS has a workspace for each of its handles, of which torch makes one a thread: the forward pass runs on
one thread, the backward pass on autograd's. torch (aten/src/ATen/cuda/CublasHandlePool.cpp; "CUDA semantics: cuBLAS
workspaces" in its documentation) takes it from the caching allocator and keeps it: `:4096:2:16:8`, that is
2 × 4096 + 16 × 8 KiB, and 32 MiB from compute capability 9.0 on; `CUBLAS_WORKSPACE_CONFIG` changes that.

Histories that others published agree: one block of 33,554,432 bytes in one, two of one size for the two threads of a
training step in another, whose torch of 2022 took 4 MiB each (`docs/footprint.md`). A product with a bias takes 1 MiB
more for cublasLt while it runs, which is not in the allowance.

cuDNN takes what its algorithms need while a convolution runs (`analysis/footprint/step/cudnn_workspaces.py`), if there
is room: not what a step needs, so it is a row of its own (`where_there_is_room`).

Not claimed: cuDNN's for recurrent layers and oneDNN's, which are not known before; versions of torch whose cuBLAS
allocates for itself have the same bytes outside of the caching allocator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.footprint.step.cudnn_workspaces import PARTS, convolves, with_workspaces
from analysis.footprint.step.live_bytes import live_bytes
from results.records import Operation, Storage

KIB = 1024
CUBLAS_BYTES = (2 * 4096 + 16 * 8) * KIB
HOPPER_BYTES = 32 * 1024 * KIB
"""Of one handle, from compute capability 9.0 on; of an unknown device, too."""

SOURCE = "allowance: torch's default, threads: {}"

ROOM = "where there is room"

_PRODUCTS = ("matmul", "attention", "recurrent")
"""Kinds of operations that may call cuBLAS."""


@dataclass(frozen=True)
class Workspace:
    """What one library takes. source: of the number. needed: the step cannot do with less."""

    library: str
    nbytes: int
    source: str
    needed: bool = True


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


def where_there_is_room(
    operations: Sequence[Operation], storages: Sequence[Storage], device: str, precision: str
) -> tuple[Workspace, ...]:
    """How far cuDNN's workspaces lift the peak, where memory is left for them.

    storages: settled (`analysis.footprint.step.live_bytes`). precision: the policy of the step.
    """
    if device != "cuda" or not convolves(operations):
        return ()
    lifted = live_bytes(*with_workspaces(operations, storages, precision))
    peak, without = max(lifted), max(live_bytes(storages, len(operations)))
    at = operations[(lifted.index(peak) - 1) // PARTS] if peak > without else None
    where = f", in {at.module or at.name}" if at else "; none at the peak"
    return (Workspace("cuDNN", peak - without, f"{ROOM}{where}", needed=False),)


def _handle_bytes(compute_capability: str | None) -> int:
    if compute_capability is None or not compute_capability[0].isdigit():
        return HOPPER_BYTES
    return HOPPER_BYTES if float(compute_capability) >= 9 else CUBLAS_BYTES


def unforeseen(operations: Sequence[Operation], device: str, layout: str = "channels_first") -> str:
    """What is known to come on top without a number, or with a doubtful one, in one line; "" for nothing."""
    kinds = {operation.kind for operation in operations}
    if device == "cuda":
        if "recurrent" in kinds:
            return "cuDNN's workspaces of recurrent layers are not known before: 0 here"
        if layout == "channels_last" and convolves(operations):
            return "cuDNN's workspaces are those of channels_first, too high for channels_last: fewer copies"
        wide = all(each.input_dtypes[:1] == ("float32",) for each in operations if each.kind == "convolution")
        return "" if wide else "cuDNN's workspaces follow what was recorded in TF32: of half precision little was"
    heavy = kinds & {"convolution", "recurrent", "matmul", "attention", "normalization"}
    return "what kernels take for themselves on a CPU is not known before: 0 here" if heavy else ""
