"""One rank of data-parallel trainings on CPUs: what its meter says of each way.

A process of its own, started by test_ranks.py.
"""

import torch
import torch.distributed as dist

WIDTH, HEADS, LONG = 32, 4, 6


def summaries(ways, rank, ranks, store):
    """[FLOP a step, steps, units, warnings, mask-exact FLOP a step] of each way."""
    return [_summary(way, rank, ranks, store) for way in ways]


def lengths(rank):
    """Of the sequences in each step of a rank, padded to LONG."""
    return [[LONG, 3 + rank], [LONG, 1], [2, LONG - rank]]


def _summary(way, rank, ranks, store):
    import flopledger

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}-{way}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = _model(way, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    masked = way.startswith("masks")
    meter = flopledger.UtilizationMeter(model, warm_up_steps=0 if masked else 1, energy=False, read_masks=masked)
    for args, kwargs in _batches(way, rank):
        with meter.step():
            optimizer.zero_grad()
            model(*args, **kwargs).sum().backward()
            optimizer.step()
    found = meter.summary()
    dist.destroy_process_group()
    counted = [found.model_flop_per_step, found.steps, list(found.units), list(found.warnings)]
    return [*counted, found.mask_exact_flop_per_step]


def _model(way, ranks):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    if way.startswith("masks"):
        from tests.support.nets.masked_nets import Attends

        model = DistributedDataParallel(Attends(WIDTH, HEADS))
        return torch.compile(model, backend="eager") if way == "masks, compiled" else model
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


def _batches(way, rank):
    """(args, kwargs) of each step."""
    if way.startswith("masks"):
        for each in lengths(rank):
            mask = (torch.arange(LONG) < torch.tensor(each)[:, None]).long()
            yield (torch.randn(len(each), LONG, WIDTH),), {"attention_mask": mask}
        return
    for size in [3, 3, 2, 2, 5, 5] if way == "tp" else [2 + rank] * 4:
        yield (torch.randn(size, WIDTH),), {}
