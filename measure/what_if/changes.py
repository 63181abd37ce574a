"""The changes that can be tried, each as a function from the parts of a step to changed parts.

A change gets a copy of its own. It raises Unavailable, in one line, where it does not apply to this step or device, or
where it is in use already. What is slow only once (compiling, capturing) runs before the time begins.

* bf16: the model's forward pass under `torch.autocast`, its outputs as float32 again, as Accelerate does it.
* batch_size: samples are repeated, so that values of the batch are no reason for another time.
* cuda_graph: the whole step is captured once and replayed; each step copies its batch into the captured one.
* workers, pinned_memory: the step takes its batches from a DataLoader made anew with that setting.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from measure.what_if.parts import TrialParts, resized
from results import Unavailable

CAPTURE_WARM_UP_STEPS = 3
"""torch.cuda.graph's documentation: steps on a side stream before a capture."""

MOST_WORKERS = 4


def channels_last(parts: TrialParts, _number: int | None) -> TrialParts:
    """Weights and images in torch.channels_last."""
    weights = [each for each in parts.model.parameters() if each.dim() == 4]
    if not weights:
        raise Unavailable("the model has no weights of four dimensions")
    last = torch.channels_last
    if all(each.is_contiguous(memory_format=last) and not each.is_contiguous() for each in weights if _has_order(each)):
        raise Unavailable("the weights are in channels_last already")

    def laid_out(value: Any) -> Any:
        return value.contiguous(memory_format=last) if isinstance(value, torch.Tensor) and value.dim() == 4 else value

    parts.model.to(memory_format=last)
    if parts.loader is None:
        return replace(parts, batch=tree_map(laid_out, parts.batch))
    step = parts.step
    return replace(parts, step=lambda model, optimizer, batch: step(model, optimizer, tree_map(laid_out, batch)))


def bf16(parts: TrialParts, _number: int | None) -> TrialParts:
    """The forward pass under autocast to bfloat16."""
    kind = parts.device.type
    if any(each.is_floating_point() and each.dtype != torch.float32 for each in parts.model.parameters()):
        raise Unavailable("expected weights of float32, which autocast is for")
    if _runs_under_autocast(parts):
        raise Unavailable("the step runs under autocast already")
    if kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise Unavailable("this device has no bfloat16")

    def as_float(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value

    forward = torch.autocast(kind, dtype=torch.bfloat16)(parts.model.forward)
    parts.model.forward = lambda *args, **kwargs: tree_map(as_float, forward(*args, **kwargs))
    return parts


def tf32(parts: TrialParts, _number: int | None) -> TrialParts:
    """float32 products on TF32 units."""
    _need_cuda(parts, "TF32 is of CUDA devices")
    if torch.cuda.get_device_capability(parts.device) < (8, 0):
        raise Unavailable("this device has no TF32: expected compute capability 8.0 or above")
    if torch.get_float32_matmul_precision() != "highest" and torch.backends.cudnn.allow_tf32:
        raise Unavailable("TF32 is allowed already")
    return replace(parts, around=_tf32_allowed)


def compiled_model(parts: TrialParts, _number: int | None) -> TrialParts:
    """torch.compile's model."""
    if any(isinstance(each, torch._dynamo.OptimizedModule) for each in parts.model.modules()):
        raise Unavailable("the model is compiled already")
    model: Any = torch.compile(parts.model, dynamic=False)
    return replace(parts, model=model)


def cuda_graph(parts: TrialParts, _number: int | None) -> TrialParts:
    """The step as one CUDA graph."""
    _need_cuda(parts, "CUDA graphs are of CUDA devices")
    if parts.loader is not None:
        raise Unavailable("expected batches of one size that lie on the device, got a loader")
    step, model, optimizer = parts.step, parts.model, parts.optimizer
    optimizer.state.clear()
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    own = tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, parts.batch)
    side: Any = torch.cuda.Stream(parts.device)
    side.wait_stream(torch.cuda.current_stream(parts.device))
    with torch.cuda.stream(side):
        for _ in range(CAPTURE_WARM_UP_STEPS):
            step(model, optimizer, own)
    torch.cuda.current_stream(parts.device).wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model, optimizer, own)
    places = [each for each in tree_leaves(own) if isinstance(each, torch.Tensor)]

    def replayed(_model: Any, _optimizer: Any, batch: Any) -> None:
        values = (each for each in tree_leaves(batch) if isinstance(each, torch.Tensor))
        for place, value in zip(places, values, strict=True):
            place.copy_(value, non_blocking=True)
        graph.replay()

    return replace(parts, step=replayed, allocates=False)


def fused_optimizer(parts: TrialParts, _number: int | None) -> TrialParts:
    """The optimizer's fused implementation, with a state of its own."""
    optimizer, name = parts.optimizer, type(parts.optimizer).__name__
    if "fused" not in optimizer.defaults:
        raise Unavailable(f"{name} has no fused implementation")
    if all(group["fused"] for group in optimizer.param_groups):
        raise Unavailable(f"{name} is fused already")
    optimizer.state.clear()
    for group in optimizer.param_groups:
        group.update(fused=True, foreach=False)
    return parts


def batch_size(parts: TrialParts, number: int | None) -> TrialParts:
    """Another number of samples in a step; twice as many without a number."""
    size = number or 2 * parts.samples
    if size == parts.samples:
        raise Unavailable(f"the batch has {size} samples already")
    if parts.loader is not None:
        return replace(parts, loader=_loader(parts, batch_size=size))
    return replace(parts, batch=parts.batch_of(size) if parts.batch_of else resized(parts.batch, size))


def workers(parts: TrialParts, number: int | None) -> TrialParts:
    """Another number of worker processes of the loader."""
    count = min(MOST_WORKERS, os.cpu_count() or 1) if number is None else number
    loader = _need_loader(parts)
    if loader.num_workers == count:
        raise Unavailable(f"the loader has {count} workers already")
    return replace(parts, loader=_loader(parts, num_workers=count))


def pinned_memory(parts: TrialParts, _number: int | None) -> TrialParts:
    """Batches in page-locked memory, copied to the device without waiting."""
    _need_cuda(parts, "pinned memory is for copies to a CUDA device")
    if _need_loader(parts).pin_memory:
        raise Unavailable("the loader pins its memory already")
    return replace(parts, loader=_loader(parts, pin_memory=True))


CHANGES: dict[str, Callable[[TrialParts, int | None], TrialParts]] = {
    "channels_last": channels_last,
    "bf16": bf16,
    "tf32": tf32,
    "compile": compiled_model,
    "fused_optimizer": fused_optimizer,
    "batch_size": batch_size,
    "workers": workers,
    "pinned_memory": pinned_memory,
    "cuda_graph": cuda_graph,
}
"""Name → change. A capture that fails may leave the device unusable for this process, so that one is the last."""


@contextlib.contextmanager
def _tf32_allowed() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _need_cuda(parts: TrialParts, words: str) -> None:
    if parts.device.type != "cuda":
        raise Unavailable(f"{words}, this step runs on {parts.device}")


def _need_loader(parts: TrialParts) -> Any:
    if parts.loader is None:
        raise Unavailable("the batches are there before the step begins: there is no loader")
    return parts.loader


def _has_order(weight: torch.Tensor) -> bool:
    """Whether the two layouts differ for it: for a 1 × 1 kernel they do not."""
    return weight.shape[1] > 1 and weight.shape[2] * weight.shape[3] > 1


def _runs_under_autocast(parts: TrialParts) -> bool:
    """One untimed step tells whether autocast is on where the model is called."""
    seen: list[bool] = []
    kind = parts.device.type
    handle = parts.model.register_forward_pre_hook(lambda *_: seen.append(torch.is_autocast_enabled(kind)))
    try:
        parts.ready()()
    finally:
        handle.remove()
    return any(seen)


def _loader(parts: TrialParts, **changed: Any) -> torch.utils.data.DataLoader[Any]:
    """The loader made anew with other settings. Raises Unavailable for batches that its own sampler decides on."""
    old = _need_loader(parts)
    if old.batch_size is None:
        raise Unavailable("the loader's batches are made by a sampler of its own")
    count = changed.get("num_workers", old.num_workers)
    settings: dict[str, Any] = {
        "batch_size": old.batch_size,
        "sampler": None if isinstance(old.dataset, torch.utils.data.IterableDataset) else old.sampler,
        "num_workers": count,
        "collate_fn": old.collate_fn,
        "pin_memory": old.pin_memory,
        "drop_last": old.drop_last,
        "worker_init_fn": old.worker_init_fn,
        "generator": old.generator,
        "persistent_workers": count > 0,
        "multiprocessing_context": old.multiprocessing_context if count else None,
    }
    return torch.utils.data.DataLoader(old.dataset, **(settings | changed))
