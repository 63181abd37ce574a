"""One rank of data-parallel trainings on CPUs: what its meter says of each way.

A process of its own, started by test_ranks.py.
"""

import torch
import torch.distributed as dist

WIDTH = 32


def summaries(ways, rank, ranks, store):
    """[FLOP a step, steps, units, warnings] of each way."""
    return [_summary(way, rank, ranks, store) for way in ways]


def _summary(way, rank, ranks, store):
    import flopledger

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}-{way}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = _model(way, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    meter = flopledger.UtilizationMeter(model, warm_up_steps=1, energy=False)
    for size in [3, 3, 2, 2, 5, 5] if way == "tp" else [2 + rank] * 4:
        with meter.step():
            optimizer.zero_grad()
            model(torch.randn(size, WIDTH)).sum().backward()
            optimizer.step()
    found = meter.summary()
    dist.destroy_process_group()
    return [found.model_flop_per_step, found.steps, list(found.units), list(found.warnings)]


def _model(way, ranks):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4 if way == "tp" else 3)])
    if way == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = dist.init_device_mesh("cpu", (ranks,))
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel(), "2": ColwiseParallel(), "3": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)
    if way == "ddp":
        return DistributedDataParallel(model)
    mesh = dist.init_device_mesh("cpu", (ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)
