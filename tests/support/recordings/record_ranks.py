"""Three gloo processes that train one small net, recorded by torch's profiler: for the files in tests/data/ranks.

    python -m tests.support.recordings.record_ranks tests/data/ranks

Rank SLOW sleeps for SLEEP_S before its forward pass from step FROM_STEP on, so that the others wait for it. What names
the machine is left out of the files.
"""

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.multiprocessing as processes
from torch.distributed import destroy_process_group, init_process_group
from torch.profiler import ProfilerActivity, profile, schedule

RANKS = 3
WIDTH, LAYERS, BATCH = 256, 4, 32
SLOW, SLEEP_S, FROM_STEP = 1, 0.05, 4
FIRST_STEP, STEPS = 2, 5
"""Recorded: 2, 3, 4, 5, 6."""


def train(rank: int, rendezvous: str, folder: str) -> None:
    """One rank's training, and its file."""
    init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(BATCH, WIDTH)
    plan = schedule(wait=FIRST_STEP - 1, warmup=1, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for step in range(FIRST_STEP + STEPS):
            if rank == SLOW and step >= FROM_STEP:
                time.sleep(SLEEP_S)
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json.gz")
    destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        processes.spawn(train, args=(f"{name}/rendezvous", name), nprocs=RANKS)
        for rank in range(RANKS):
            file = Path(name) / f"rank{rank}.json.gz"
            held = json.loads(gzip.decompress(file.read_bytes()))
            kept = {name: value for name, value in held.items() if name not in ("traceName", "trace_id")}
            text = json.dumps({**kept, "host_name": "host"}).encode()
            (options.folder / file.name).write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
