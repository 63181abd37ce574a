"""Builds a rank's part of a model: replicas, tensor-parallel modules, experts, or one stage of a pipeline.

`split_model` takes a model, a `RankGrid` (ranks per axis), a device mesh and styles (pattern of paths → how to split),
and returns this rank's model. `pipeline_stage` also takes a batch, a loss and the modules with which stages begin, and
returns a `PipelineStage`. Replicas are DistributedDataParallel or fully_shard, with torch's own defaults (buckets of 25
MiB). For stages, the model is exported (torch.export) with one micro-batch. torch.distributed.pipelining runs them
(schedule 1F1B). Control flow that depends on values is refused, and so are weights that two stages hold. An export
fixes sizes. So a stage that is also split over the tensor axis is exported with a rank's widths, and gets the split
layers afterwards. Results differ for a model whose samples interact (batch norm sees a micro-batch).
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from analysis.parallel.rank_grid import RankGrid, nearest_divisor
from measure.parallel.real_group import copies_of_experts, expert_mesh
from measure.parallel.styles import (
    apply_experts,
    apply_plan,
    check_heads,
    matching_modules,
    own_plan,
    plans_of,
    repeat_split_modules,
    shard_weights,
)
from results.errors import one_line


def split_model(
    model: torch.nn.Module,
    grid: RankGrid,
    mesh: DeviceMesh,
    styles: Mapping[str, str] | None = None,
    strict: bool = True,
) -> torch.nn.Module:
    """Return the model that this rank trains in place of the given model (or stage), which is changed in place. A grid
    of one rank changes nothing.

    mesh: of `rank_mesh`; styles: pattern → style of the tensor and the expert axis; None: the model's own. strict: as
    in `apply_plan`, for given styles. Raises ValueError for a model without a plan or that does not fit it, Unavailable
    for a torch that cannot replicate split modules.
    """
    plan, experts = plans_of(model, grid, styles)
    strict = strict and styles is not None
    divided: list[str] = []
    if grid.ep > 1:
        wide = expert_mesh(mesh, grid.ep)
        divided = apply_experts(model, wide["ep"], mesh["tp"], experts, strict)
        for name in divided:
            _reduce_expert(model.get_parameter(name), copies_of_experts(wide), grid.dp)
    if grid.tp > 1:
        apply_plan(model, mesh["tp"], plan, strict)
    if grid.dp == 1:
        return model
    copies = mesh["dp"]
    if grid.replicas == "fsdp":
        shard_weights(model, copies)
        return model
    if grid.tp > 1:
        repeat_split_modules(model, copies, divided)
        return model
    replicated: Any = torch.nn.parallel.DistributedDataParallel
    replicated._set_params_and_buffers_to_ignore_for_model(model, divided)
    return replicated(model, process_group=copies.get_group())  # type: ignore[no-any-return]


def _reduce_expert(parameter: torch.nn.Parameter, owners: DeviceMesh, copies: int) -> None:
    """Average a divided parameter's gradient over the replicas, whose tokens have all come to it. owners: the ranks
    that have the same experts; copies: all replicas."""

    def reduce(parameter: torch.Tensor) -> None:
        gradient: Any = parameter.grad
        local = getattr(gradient, "_local_tensor", gradient)
        if owners.size() > 1:
            torch.distributed.all_reduce(local, group=owners.get_group())
        local.div_(copies)

    parameter.register_post_accumulate_grad_hook(reduce)


def held_parameters(model: torch.nn.Module) -> int:
    """Return the number of parameter elements that this rank holds."""
    from torch.distributed.tensor import DTensor

    tensors = (
        parameter.to_local() if isinstance(parameter, DTensor) else parameter for parameter in model.parameters()
    )
    return sum(tensor.numel() for tensor in tensors)


def record_steps(step: Callable[[], Any], count: int, on_cuda: bool) -> bytes:
    """Record `count` steps by torch's profiler (gzipped), after one that is not kept. Ranks over gloo all call this at
    the same time. After a step that raises, the profiler is not stopped: a thread may still write to its memory."""
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler.profiler import _KinetoProfile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    profiler = _KinetoProfile(activities=activities, record_shapes=True)
    profiler.prepare_trace()
    step()
    profiler.start_trace()
    for number in range(1, count + 1):
        with record_function(f"ProfilerStep#{number}"):
            step()
    _end_collectives()
    profiler.stop_trace()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rank.json.gz"
        profiler.export_chrome_trace(str(file))
        return file.read_bytes()


def _end_collectives() -> None:
    """Wait until the threads of gloo have ended all collectives so far, the profiler's part of them included.

    DistributedDataParallel continues its step as soon as a collective has a result; the thread that ran it then writes
    the end into the profiler's memory, which a profiler that was stopped meanwhile has freed (torch 2.15; seen by
    valgrind). A barrier of the group ends after all that began before it have ended. It is called in another thread,
    which the profiler does not record.
    """
    groups: Any = distributed_c10d._world.pg_map
    with ThreadPoolExecutor(1) as other:
        for group in groups:
            if distributed_c10d.get_backend(group) == "gloo":
                other.submit(distributed_c10d.barrier, group=group).result()


Loss = Callable[[Any, Any], torch.Tensor]


class PipelineStage:
    """This rank's stage, of the ranks of the pipeline axis. model: the part that it holds and trains."""

    def __init__(
        self, stage: Any, microbatches: int, loss: Loss, device: torch.device, autocast: torch.dtype | None = None
    ) -> None:
        """stage: of torch.distributed.pipelining; loss: of outputs and target; autocast: of forward pass and loss."""
        from torch.distributed.pipelining import Schedule1F1B

        self.model: torch.nn.Module = stage.submod
        self._stage = stage
        self._loss = loss
        self._has_target = True
        self._precision = contextlib.nullcontext if autocast is None else lambda: torch.autocast(device.type, autocast)
        if autocast is not None:
            stage.submod.forward = torch.autocast(device.type, autocast)(stage.submod.forward)
        self._schedule = Schedule1F1B(stage, n_microbatches=microbatches, loss_fn=self._loss_of)
        known = inspect.signature(self._schedule.step).parameters
        self._options: dict[str, Any] = {"return_outputs": False} if "return_outputs" in known else {}

    def run(self, inputs: Sequence[Any], target: Any) -> torch.Tensor | None:
        """Run forward, loss and backward of a whole batch, all stages at the same time. Returns the mean loss of the
        micro-batches on the last stage, elsewhere None. Gradients are those of the mean."""
        if not self._stage.is_last:
            self._schedule.step(*(inputs if self._stage.is_first else ()), **self._options)
            return None
        self._has_target = target is not None
        if target is None:
            target = torch.zeros(next(value for value in inputs if isinstance(value, torch.Tensor)).shape[0])
        losses: list[torch.Tensor] = []
        self._schedule.step(target=target, losses=losses, **self._options)
        return torch.stack([loss.detach() for loss in losses]).mean()

    def _loss_of(self, output: Any, target: Any) -> torch.Tensor:
        output = output[0] if isinstance(output, tuple) and len(output) == 1 else output
        with self._precision():
            return self._loss(output, target if self._has_target else None)


def first_microbatch(inputs: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Return the first of `count` parts of a batch; objects that are not tensors stay as they are."""
    return tuple(value.chunk(count)[0] if isinstance(value, torch.Tensor) else value for value in inputs)


def pipeline_stage(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    starts: Sequence[str],
    grid: RankGrid,
    loss: Loss,
    device: torch.device,
    autocast: torch.dtype | None = None,
    mesh: DeviceMesh | None = None,
    styles: Mapping[str, str] | None = None,
) -> PipelineStage:
    """Return the stage of this rank.

    inputs: of a replica's whole batch, tensors with the batch first; starts: the modules with which all stages but the
    first begin; mesh: of `rank_mesh`, None where all ranks are stages; styles: as in `split_model`. Raises ValueError
    for a model that cannot be exported or split.
    """
    from torch.distributed.pipelining import SplitPoint, pipeline

    part = first_microbatch(inputs, grid.microbatches)
    plan = own_plan(model) if styles is None else styles
    if grid.tp > 1:
        check_heads(model, plan, grid.tp)
    with _local_widths(model, plan, grid.tp):
        try:
            pipe = pipeline(model, part, split_spec=dict.fromkeys(starts, SplitPoint.BEGINNING))
            if pipe.num_stages != grid.pp:
                raise ValueError(f"expected {grid.pp} stages, got {pipe.num_stages}")
            ranks = None if mesh is None else mesh["pp"].get_group()
            stage = pipe.build_stage(torch.distributed.get_rank(ranks), device, ranks)
        except Exception as fault:  # torch.export raises exceptions of any type
            reason = one_line(" ".join(str(fault.__cause__ or fault).split()), 200)
            raise ValueError(f"pp={grid.pp}: torch.distributed.pipelining cannot split the model: {reason}") from fault
    if mesh is not None:
        if grid.tp > 1:
            whole = dict(model.named_modules())  # whose layers replace those that the export made of them
            for path, _ in list(stage.submod.named_modules()):
                if isinstance(whole.get(path), (torch.nn.Linear, torch.nn.Embedding)):
                    stage.submod.set_submodule(path, whole[path])
        graph = stage.submod.graph
        stage.submod = split_model(stage.submod, grid, mesh, plan, strict=False)
        if not hasattr(stage.submod, "graph"):  # DistributedDataParallel's: torch reads there what the stage receives
            stage.submod.graph = graph
    return PipelineStage(stage, grid.microbatches, loss, device, autocast)


@contextlib.contextmanager
def _local_widths(model: torch.nn.Module, plan: Mapping[str, str], ranks: int) -> Iterator[None]:
    """Give linear layers that the plan divides the first rank's part of their weights within the context. Raises
    ValueError for a width that the ranks do not divide."""
    whole: list[tuple[torch.nn.Linear, Any, Any]] = []
    dims = {"colwise": 0, "rowwise": 1}
    try:
        for pattern, style in plan.items() if ranks > 1 else ():
            for path in matching_modules(model, pattern) if style in dims else ():
                layer, dim = model.get_submodule(path), dims[style]
                if isinstance(layer, torch.nn.Linear):
                    whole.append((layer, layer.weight, layer.bias))
                    _narrow(layer, path, dim, ranks)
        yield
    finally:
        for layer, weight, bias in whole:
            layer.weight, layer.bias = weight, bias


def _narrow(layer: torch.nn.Linear, path: str, dim: int, ranks: int) -> None:
    """Keep the first of several parts of a layer's weights. dim: 0 for outputs, 1 for inputs."""
    width = layer.weight.shape[dim]
    if width % ranks:
        near = nearest_divisor(width, ranks)
        raise ValueError(f"expected tp to divide the {width} features of {path}, got tp={ranks}; nearest {near}")
    layer.weight = torch.nn.Parameter(layer.weight.detach().chunk(ranks, dim)[0])
    if layer.bias is not None and dim == 0:
        layer.bias = torch.nn.Parameter(layer.bias.detach().chunk(ranks)[0])
