"""What of a device's memory is tensors and not libraries' workspaces, from the history of PyTorch's CUDA allocator.

The history is `torch.cuda.memory._snapshot()["device_traces"][i]`, recorded from before the model was made, with
stacks: entries with action, addr, size (as it was asked for, without rounding) and frames. A workspace is what a
function of cuBLAS's or cuDNN's asked the allocator for: one of the frames says so, but for a convolution's gradients,
whose functions have no symbols in PyTorch's builds: there it is what did not come through `empty`. What did is a
tensor, also where torch's own `cudnn_convolution` made it, its output. Pure: made-up recordings will do.

Not claimed: that each version of torch keeps the names of these functions. What has no symbols is taken for a tensor's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_WORKSPACE = re.compile(r"workspace|cudnn|cublas", re.IGNORECASE)
_KEPT = re.compile(r"at::native::cudnn_batch_norm|_cudnn_rnn|reserve", re.IGNORECASE)
"""Functions of cuDNN whose outputs are tensors."""
_EMPTY = re.compile(r"at::(detail|native)::empty|at::empty")
"""The functions by which torch makes every tensor; libraries' own memory does not come through them."""
_GRADIENTS = "at::native::convolution_backward"
"""The innermost function with a name around what cuDNN asks for to calculate a convolution's gradients."""
_PRODUCTS = "at::cuda::blas::"
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
        return any(name.startswith(_PRODUCTS) for name in names)
    for name in names:
        if name.startswith(_GRADIENTS):
            return True
        if name.startswith(("at::_ops::", "at::meta::", "torch::autograd::")):
            return False
        if _WORKSPACE.search(name) and not _KEPT.search(name):
            return True
    return False
