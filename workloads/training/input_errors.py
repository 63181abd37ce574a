"""Why a model does not take its inputs: which module failed, what it was given, and what torch said. One line.

It runs the forward pass on the very model and inputs, without gradients, and puts buffers back (the running means of
a normalisation). It tells nothing of the backward pass.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook

from workloads.catalogue.base import Batch, Workload
from workloads.training.building import fault_text
from workloads.training.losses import tensors


def reason(model: torch.nn.Module, inputs: Sequence[Any]) -> str:
    """Which module fails in model(*inputs) and why, in one line; "" if none does."""
    paths = {id(module): path for path, module in model.named_modules()}
    failed: list[tuple[BaseException | None, str]] = []  # from the inside out: a fault, and who raised it or let it by

    def leave(module: torch.nn.Module, given: Any, _output: Any) -> None:
        fault = sys.exception()
        if fault is not None:
            path, kind = paths.get(id(module), ""), type(module).__name__
            failed.append((fault, f"{f'{path} ({kind})' if path else kind} got {shapes(given)}"))

    handle = register_module_forward_hook(leave, always_call=True)
    held = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.no_grad():
            model(*inputs)
    except Exception as fault:  # noqa: BLE001  any way to fail is the answer
        where = next((place for seen, place in failed if seen is fault), f"{type(model).__name__} got {shapes(inputs)}")
        return f"{where}: {fault_text(fault)}"
    finally:
        handle.remove()
        with torch.no_grad():
            for buffer, before in held:
                buffer.copy_(before)
    return ""


def mismatch(workload: Workload, batch: Batch) -> str:
    """What speaks against a batch of a person's own, in one line: inputs of other sizes or types than the workload's
    own batch of this size has; "" for nothing."""
    size = next((tensor.shape[0] for tensor in tensors(batch.inputs) if tensor.dim()), 0)
    if not size:
        return f"{workload.name}: expected a batch of one sample or more, got {shapes(batch.inputs)}"
    wanted = shapes(workload.batch(workload.hyper, size, torch.device("meta"), None).inputs)
    got = shapes(batch.inputs)
    return "" if got == wanted else f"{workload.name} cannot take this batch: expected {wanted}, got {got}"


def shapes(inputs: Any) -> str:
    """The sizes and types of all tensors among the inputs: "2x3x224x224 float32, 2x128 int64"; "no tensor"."""
    found = [
        f"{'x'.join(map(str, t.shape)) or 'scalar'} {str(t.dtype).removeprefix('torch.')}" for t in tensors(inputs)
    ]
    return ", ".join(found) or "no tensor"
