"""Law: a rank's profiler stops after all collectives have ended, so that no thread of gloo writes to it later."""

import gzip
import json
import os
import time
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from measure.parallel.pipeline import record_steps
from measure.parallel.real_group import LOOPBACK
from runners.workers.pool import Worker

HELD_S = 0.5


def recorded(held_s: float) -> tuple[bytes, int]:
    """A worker's task: two recorded steps of one collective each, whose result alone is waited for. In the last one,
    gloo's thread is held between the result and the end of the collective. The recording, and how many had ended."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensor, begun, ended = torch.ones(8), [0], [0]

    def hold(number: int) -> None:
        time.sleep(held_s if number == 3 else 0.0)
        ended[0] += 1

    def step() -> None:
        begun[0] += 1
        number = begun[0]
        result = dist.all_reduce(tensor, async_op=True).get_future()
        result.add_done_callback(lambda _result: hold(number))
        result.wait()

    recording = record_steps(step, 2, on_cuda=False)
    found = ended[0]
    time.sleep(held_s)  # what is wrong happens in this process, not in the next one
    dist.destroy_process_group()
    return recording, found


def test_the_profiler_is_stopped_after_all_collectives_have_ended() -> None:
    worker = Worker("recorded")
    answer: Any = worker.call("tests.measure.parallel.test_rank_group:recorded", HELD_S, timeout_s=60)
    worker.stop()
    recording, ended = answer
    assert ended == 3, "one before the recording, two within"
    events = json.loads(gzip.decompress(recording))["traceEvents"]
    named = Counter(event["name"] for event in events if event.get("ph") == "X")
    assert {name: count for name, count in named.items() if name.startswith(("ProfilerStep", "gloo:"))} == {
        "ProfilerStep#1": 1,
        "ProfilerStep#2": 1,
        "gloo:all_reduce": 2,
    }
