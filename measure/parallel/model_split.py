"""A model put on the ranks of a plan, for real: replicas by DistributedDataParallel or fully_shard, modules by styles,
experts by transformers' exchange of tokens.
And some of its steps recorded by torch's profiler, as each rank sees them.

Not claimed: a better split than torch's own defaults: buckets of 25 MiB, and weights gathered by the elements of the
outermost lists of modules.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import distributed_c10d

from measure.parallel.experts import apply_experts, plans_of
from measure.parallel.fake_group import copies_mesh, copies_of_experts, expert_mesh
from measure.parallel.styles import apply_plan, repeat_split_modules, shard_weights

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from analysis.parallel.rank_grid import RankGrid


def split_model(
    model: torch.nn.Module,
    grid: RankGrid,
    mesh: DeviceMesh,
    styles: Mapping[str, str] | None = None,
    strict: bool = True,
) -> torch.nn.Module:
    """The model of this rank, or its stage of one, to be trained in the place of the one given. A plan of one rank
    changes nothing. Ranks of the context axis have the same weights, and this does not divide their tokens.

    mesh: of `rank_mesh`; styles: pattern → style of the tensor and the expert axis; None: the model's own. strict: as
    in `apply_plan`, of styles that are given. Raises ValueError for a model without a plan or that it does not fit,
    Unavailable for a torch that cannot repeat split modules.
    """
    plan, experts = plans_of(model, grid, styles)
    strict = strict and styles is not None
    divided: list[str] = []
    if grid.ep > 1:
        wide = expert_mesh(mesh, grid.ep)
        divided = apply_experts(model, wide["ep"], mesh["tp"], experts, strict)
        for name in divided:
            _reduce_expert(model.get_parameter(name), copies_of_experts(wide), grid.copies)
    if grid.tp > 1:
        apply_plan(model, mesh["tp"], plan, strict)
    if grid.copies == 1:
        return model
    copies = copies_mesh(mesh)
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
    """Have a divided parameter's gradient be the mean over the replicas, whose tokens have all come to it. owners: the
    ranks that have the same experts; copies: all replicas."""

    def reduce(parameter: torch.Tensor) -> None:
        gradient: Any = parameter.grad
        local = getattr(gradient, "_local_tensor", gradient)
        if owners.size() > 1:
            torch.distributed.all_reduce(local, group=owners.get_group())
        local.div_(copies)

    parameter.register_post_accumulate_grad_hook(reduce)


def held_parameters(model: torch.nn.Module) -> int:
    """Elements of the parameters that this rank holds."""
    from torch.distributed.tensor import DTensor

    tensors = (each.to_local() if isinstance(each, DTensor) else each for each in model.parameters())
    return sum(tensor.numel() for tensor in tensors)


def record_steps(step: Callable[[], Any], count: int, on_cuda: bool) -> bytes:
    """What torch's profiler writes (gzipped) of `count` steps, after one that it does not keep. Of ranks over gloo all
    run this at once. After a step that raises, the profiler is not stopped: a thread may still write to its memory."""
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
    """Wait until the threads of gloo have ended all collectives so far, for the profiler, too.

    DistributedDataParallel goes on with its step as soon as a collective has a result; the thread that ran it then
    writes the end into the profiler's memory, which a profiler that was stopped meanwhile has freed (torch 2.15; seen
    by valgrind). A barrier of the group ends after all that began before it have ended. It is called in another
    thread, which the profiler does not record.
    """
    groups: Any = distributed_c10d._world.pg_map
    with ThreadPoolExecutor(1) as other:
        for group in groups:
            if distributed_c10d.get_backend(group) == "gloo":
                other.submit(distributed_c10d.barrier, group=group).result()
