"""How a rank joins its group: NCCL between GPUs, gloo between processors and for what ranks say of blocks.

Steps of a rank under torch's profiler: what is kept of them, and that no thread of gloo writes to it afterwards.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist

from measure.parallel import real_group
from measure.parallel.fake_group import GroupMember
from measure.parallel.model_split import record_steps
from measure.parallel.real_group import LOOPBACK
from runners.workers.pool import Worker


@pytest.mark.parametrize(("device", "backend"), [("cuda:1", "nccl"), ("cpu", "gloo")])
def test_the_steps_collectives_are_the_devices_and_blocks_are_told_over_gloo(
    device: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that NCCL works, which takes two GPUs (`test_two_gpus_train_over_nccl`)."""
    joined: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    monkeypatch.setattr(real_group, "TCPStore", lambda host, port, is_master, timeout: (host, port, is_master))
    monkeypatch.setattr(real_group, "PrefixStore", lambda prefix, store: (prefix, store))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **more: joined.update(backend=backend, **more))
    monkeypatch.setattr(dist, "new_group", lambda **more: groups.append(more))
    monkeypatch.setattr(dist, "destroy_process_group", joined.clear)
    member = GroupMember(1, 2, device, ("head", 29500), "flopledger/cell3", 60.0, False)
    with real_group.rank_group(member) as group:
        assert (joined["backend"], joined["rank"], joined["world_size"], group.rank) == (backend, 1, 2, 1)
        assert joined["device_id"] == (torch.device(device) if backend == "nccl" else None)
        assert joined["store"] == ("flopledger/cell3", ("head", 29500, False))
        assert [each["backend"] for each in groups] == ["gloo"]
        assert {joined["timeout"], groups[0]["timeout"]} == {joined["timeout"]}
        assert joined["timeout"].total_seconds() == 60
    assert joined == {}


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
