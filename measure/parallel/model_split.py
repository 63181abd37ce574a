"""A model put on the ranks of a plan, for real: replicas by DistributedDataParallel or fully_shard, modules by styles.
And some of its steps recorded by torch's profiler, as each rank sees them.

Not claimed: a better split than torch's own defaults: buckets of 25 MiB, and weights gathered by the elements of the
outermost lists of modules.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from measure.parallel.meshes import copies_mesh
from measure.parallel.styles import apply_plan, own_plan, shard_weights

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from analysis.parallel import RankGrid


def split_model(
    model: torch.nn.Module, grid: RankGrid, mesh: DeviceMesh, styles: Mapping[str, str] | None = None
) -> torch.nn.Module:
    """The model of this rank, to be trained in the place of the one given; of a grid without a pipeline. A plan of one
    rank changes nothing. Ranks of the context axis have the same weights, and this does not divide their tokens.

    mesh: of `rank_mesh`; styles: pattern → style of the tensor axis; None: the model's own. Raises ValueError for a
    model without a plan, or one that the plan does not fit.
    """
    if grid.tp > 1:
        plan = own_plan(model) if styles is None else styles
        if not plan:
            raise ValueError(
                f"tp={grid.tp}: expected a model with a tp_plan of its own (transformers), got one without"
            )
        apply_plan(model, mesh["tp"], plan, strict=styles is not None)
    if grid.copies == 1:
        return model
    copies = copies_mesh(mesh)
    if grid.replicas == "fsdp":
        shard_weights(model, copies)
        return model
    return torch.nn.parallel.DistributedDataParallel(model, process_group=copies.get_group())


def held_parameters(model: torch.nn.Module) -> int:
    """Elements of the parameters that this rank holds."""
    from torch.distributed.tensor import DTensor

    tensors = (each.to_local() if isinstance(each, DTensor) else each for each in model.parameters())
    return sum(tensor.numel() for tensor in tensors)


def record_steps(step: Callable[[], Any], count: int, on_cuda: bool) -> bytes:
    """What torch's profiler writes (gzipped) of `count` steps, after one that it does not keep."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    plan = schedule(wait=0, warmup=1, active=count, repeat=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rank.json.gz"

        def keep(profiler: Any) -> None:
            profiler.export_chrome_trace(str(file))

        with profile(activities=activities, schedule=plan, record_shapes=True, on_trace_ready=keep) as profiler:
            for _ in range(1 + count):
                step()
                profiler.step()
        return file.read_bytes()
