"""One rank of data-parallel trainings on CPUs: prints the meter's numbers, a line of JSON for each way.

Started by test_ranks.py.
"""

import json
import sys

import torch
import torch.distributed as dist

WIDTH = 32


def main(way, rank, ranks, store):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import flopledger

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}-{way}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
    if way == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = dist.init_device_mesh("cpu", (ranks,))
        model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    elif way == "ddp":
        model = DistributedDataParallel(model)
    else:
        mesh = dist.init_device_mesh("cpu", (ranks,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    meter = flopledger.UtilizationMeter(model, warm_up_steps=1, energy=False)
    for _ in range(4):
        with meter.step():
            optimizer.zero_grad()
            model(torch.randn(2 + rank * (way != "tp"), WIDTH)).sum().backward()
            optimizer.step()
    found = meter.summary()
    print(json.dumps([found.model_flop_per_step, found.steps, found.units, found.warnings]))
    dist.destroy_process_group()


if __name__ == "__main__":
    for each in sys.argv[4:]:
        main(each, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
