"""A rank of a real process group: joined for one cell, and told by the first rank which block of steps comes next.

Collectives of the step run over NCCL on GPUs and over gloo on CPUs; what ranks say to each other about blocks goes over
a gloo group of its own, outside of what is timed. Not claimed: recovery. A rank that fails leaves the others with an
error of their collectives, and the process that holds them ends them.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from measure.parallel.member import GroupMember
from measure.timing.rank_blocks import END, BlockOrder

LOOPBACK = "lo"


class RankGroup:
    """The group that a process is in while `rank_group` lasts. Raises RuntimeError where another rank is gone."""

    def __init__(self, rank: int, control: Any) -> None:
        self.rank = rank
        self._control = control

    def announce(self, steps: int, part: str, lead_in_steps: int = 0) -> None:
        """The first rank says which block comes, and all begin it."""
        self.share(BlockOrder(steps, part, lead_in_steps))
        if part != END:
            self.barrier()

    def order(self) -> BlockOrder:
        """The other ranks wait for the next block, and all begin it."""
        order: BlockOrder = self.share(None)
        if order.part != END:
            self.barrier()
        return order

    def share(self, value: Any) -> Any:
        """The first rank's value, on all ranks."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def largest(self, values: Sequence[float]) -> list[float]:
        """Of each value the largest of all ranks."""
        found = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._control)
        return [float(value) for value in found]

    def barrier(self) -> None:
        """All ranks wait for the last."""
        dist.barrier(group=self._control)


@contextlib.contextmanager
def rank_group(member: GroupMember) -> Iterator[RankGroup]:
    """Join the group of a member. Raises RuntimeError (of torch.distributed) where the ranks do not meet."""
    on_cuda = member.device.startswith("cuda")
    if member.alone and LOOPBACK in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # a host whose name does not resolve has this one still
    limit = timedelta(seconds=member.timeout_s)
    store = PrefixStore(member.prefix, TCPStore(*member.address, is_master=False, timeout=limit))
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        store=store,
        rank=member.rank,
        world_size=member.world,
        timeout=limit,
        device_id=torch.device(member.device) if on_cuda else None,
    )
    control = dist.new_group(backend="gloo", timeout=limit)
    yield RankGroup(member.rank, control)
    dist.destroy_process_group()  # after an error it may hang, and the process ends anyway
