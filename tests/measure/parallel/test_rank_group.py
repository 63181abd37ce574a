"""How a rank joins its group: NCCL between GPUs, gloo between processors and for what ranks say of blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from measure.parallel import real_group
from measure.parallel.member import GroupMember


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
