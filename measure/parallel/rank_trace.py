"""Records one rank's training step: its operations, its storages, and its parameters in the order of their gradients.

`trace_rank` takes a `RankStep`, the mesh's sizes and a rank, and returns a `RankTrace`. `trace_single` records the step
of a single device, without a plan. A plan (pattern of module paths → style) is applied to the model first
(`styles.py`). The step is forward, the sum of all outputs as its loss, and backward, as in
`measure.operations.model_trace`. The optimizer's step is not run. Recorded sizes are local: those that this rank
computes with and passes to collectives.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from analysis.parallel.rank_trace import LocalParameter, RankTrace
from measure.model.state_snapshot import check_outputs, sum_of_outputs
from measure.operations.fake_mode import NOT_ON_FAKE, FakeMode, fake_mode, quiet_logs, to_fake
from measure.operations.tracer import trace_step
from measure.parallel.real_group import expert_mesh, fake_mesh, group_axes, no_global_shapes
from measure.parallel.styles import apply_experts, apply_plan, outermost_elements, shard_weights, spread_evenly
from results.errors import Unavailable, one_line

FIRST_BUCKET_BYTES = 1024**2
BUCKET_BYTES = 25 * 1024**2
"""Sizes of the buckets of gradients of DistributedDataParallel: of the first bucket, and of the others."""


@dataclass(frozen=True)
class RankStep:
    """The step of every rank.

    build: makes the model on the default device, which is meta here. inputs: those of a whole micro-batch, on any
    device. plan: pattern → style. strict: as in `apply_plan`. sharded: whether `fully_shard` is applied. experts:
    pattern → style of the expert axis, which has `expert_ranks` ranks.
    """

    build: Callable[[], torch.nn.Module]
    inputs: tuple[Any, ...]
    plan: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    sharded: bool = False
    experts: Mapping[str, str] = field(default_factory=dict)
    expert_ranks: int = 1


def trace_rank(step: RankStep, sizes: Mapping[str, int], rank: int) -> RankTrace:
    """Trace the step of this rank of a mesh with the axes "pp", "dp" and "tp" in this order (`fake_mesh`).

    Raises ValueError for a plan that does not fit the model, Unavailable where fake tensors cannot run the step.
    """
    with fake_mesh(sizes, rank) as mesh:
        return _trace(step, mesh)


def trace_single(step: RankStep) -> RankTrace:
    """Trace the step on a single device, without any plan. Raises Unavailable where fake tensors cannot run it."""
    return _trace(step, None)


def _trace(step: RankStep, mesh: DeviceMesh | None) -> RankTrace:
    mode = fake_mode()
    with torch.device("meta"):
        model = step.build().train()
    to_fake(model, mode)
    axes: dict[str, str] = {}
    experts: list[str] = []
    rows: dict[str, int] = {}
    if mesh is not None:
        axes, experts, rows = _split(model, step, mesh, mode)
    with quiet_logs(), no_global_shapes(mode), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")
        try:
            trace = _record(model, to_fake(step.inputs, mode), mode, rows)
        except NOT_ON_FAKE as fault:
            if mesh is None or isinstance(fault, Unavailable):
                raise Unavailable(f"fake tensors cannot run the step: {one_line(str(fault), 200)}") from fault
            ranks = f"{mesh['tp'].size()} ranks of the tensor axis" if mesh["tp"].size() > 1 else "a rank"
            raise ValueError(f"plan: the model does not run on {ranks}: {one_line(str(fault), 200)}") from fault
    return replace(trace, axes=axes, experts=frozenset(experts))


def _split(
    model: torch.nn.Module, step: RankStep, mesh: DeviceMesh, mode: FakeMode
) -> tuple[dict[str, str], list[str], dict[str, int]]:
    """Apply the plans of a step to its model, as this rank of the mesh. Return the axes and experts of RankTrace, and
    name of a parameter → rows that the replicas divide, if it is sharded."""
    axes = group_axes(mesh)
    experts: list[str] = []
    tensor = mesh["tp"]
    if step.expert_ranks > 1:
        wide = expert_mesh(mesh, step.expert_ranks)
        axes = group_axes(mesh, wide["ep"])
        with mode:
            experts = apply_experts(model, wide["ep"], tensor, step.experts, step.strict)
        spread_evenly(model, mode, step.experts, step.expert_ranks, tensor.size())
    if tensor.size() > 1 and step.plan:
        with mode:
            apply_plan(model, tensor, step.plan, step.strict)
    rows = {}
    if step.sharded:
        rows = {name: _local(parameter).shape[0] for name, parameter in model.named_parameters() if parameter.dim()}
        shard_weights(model, mesh["dp"])  # outside of the mode: it makes meshes, whose values are read
    return axes, experts, rows


def _record(model: torch.nn.Module, inputs: Any, mode: FakeMode, rows: Mapping[str, int]) -> RankTrace:
    arrivals: list[str] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _grad, name=name: arrivals.append(name))
    trace = trace_step(step_of(model, inputs), model=model, inputs=inputs, mode=mode, steps_before=0)
    buffers = {name: _local(buffer).nbytes for name, buffer in model.named_buffers()}
    parameters = tuple(local_parameters(model, rows))
    return RankTrace(trace.operations, trace.storages, parameters, tuple(arrivals), buffers)


def step_of(model: torch.nn.Module, inputs: Sequence[Any]) -> Callable[[Callable[[str], None]], None]:
    """Return the step: forward, loss and backward, announced to `mark`."""

    def step(mark: Callable[[str], None]) -> None:
        mark("forward")
        outputs = model(*inputs)
        mark("loss")
        check_outputs(model, outputs)
        loss = sum_of_outputs(outputs)
        if loss is not None:
            mark("backward")
            loss.backward()
        mark("end")

    return step


def local_parameters(model: torch.nn.Module, rows: Mapping[str, int]) -> list[LocalParameter]:
    """Return this rank's part of each parameter. rows: name → rows that the replicas divide, if it is sharded."""
    names: dict[int, list[str]] = {}
    held: dict[int, torch.Tensor] = {}
    elements = {
        f"{path}.{name}": path for path, element in outermost_elements(model) for name, _ in element.named_parameters()
    }
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        held[id(parameter)] = parameter
    return [
        LocalParameter(
            tuple(names[key]),
            tuple(_local(parameter).shape),
            str(parameter.dtype).removeprefix("torch."),
            _local(parameter).nbytes,
            parameter.requires_grad,
            rows.get(names[key][0], 0),
            elements.get(names[key][0], ""),
        )
        for key, parameter in held.items()
    ]


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def gradient_buckets(parameters: Sequence[LocalParameter]) -> list[int]:
    """Return the bytes of each all-reduce of DistributedDataParallel. parameters: in the order of their gradients.

    The buckets are those of torch's rule from the second step on, when they follow the order of arrival. Gradients are
    reduced once a step, in the last micro-batch (`no_sync` before).
    """
    if not parameters:
        return []
    assignment = torch._C._distributed_c10d._compute_bucket_assignment_by_size
    tensors = [
        torch.empty(parameter.shape, dtype=getattr(torch, parameter.dtype), device="meta") for parameter in parameters
    ]
    groups, _ = assignment(tensors, [FIRST_BUCKET_BYTES, BUCKET_BYTES], [False] * len(tensors))
    return [sum(parameters[index].nbytes for index in group) for group in groups]
