"""A rank of a real process group: joined for one cell, and told by the first rank which block of steps comes next.

Collectives of the step run over NCCL on GPUs and over gloo on CPUs; what ranks say to each other about blocks goes over
a gloo group of its own, outside of what is timed. Not claimed: recovery. A rank that fails leaves the others with an
error of their collectives, and the process that holds them ends them.

Collectives timed alone: all_reduce, all_gather, reduce_scatter and all_to_all of float32, over sizes.

A block of calls begins at a barrier and is as long as on the slowest rank; the first call of each size is left out,
because libraries choose algorithms and connect in it. Operands are random normal.

Not claimed: what a step's collectives reach, which share the link and the processors with computing.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from analysis.devices.ceilings import COLLECTIVES, CollectiveRate, sent_share
from measure.parallel.fake_group import GroupMember
from measure.timing.clocks import Clock, clock_for
from measure.timing.rank_blocks import END, BlockOrder
from results.errors import one_line

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


ELEMENT_BYTES = 4
BLOCKS = 7
BLOCK_S = 0.02
MOST_CALLS = 200

Call = Callable[[], Any]


def collective_rates(member: GroupMember, sizes: Sequence[int]) -> list[CollectiveRate]:
    """A row for each collective and size, the same on all ranks. sizes: bytes of the buffer, rounded up to
    elements that ranks can share. A collective that the backend does not have is a row with the reason."""
    clock = clock_for(member.device)
    with rank_group(member) as group:
        return [_rate(member, group, clock, operation, size) for operation in COLLECTIVES for size in sizes]


def _rate(member: GroupMember, group: RankGroup, clock: Clock, operation: str, size: int) -> CollectiveRate:
    elements = -(-size // (ELEMENT_BYTES * member.world)) * member.world
    nbytes = elements * ELEMENT_BYTES
    backend = dist.get_backend()
    blank = CollectiveRate(
        operation=operation, ranks=member.world, backend=backend, device=member.device.partition(":")[0], nbytes=nbytes
    )
    try:
        call = _call(operation, elements, member)
        call()
        clock.synchronize()
    except (NotImplementedError, ValueError) as fault:
        return replace(blank, status="unavailable", reason=one_line(str(fault), 200))
    once_s = group.largest([_block_s(call, 1, clock, group)])[0]
    calls = max(1, min(MOST_CALLS, int(BLOCK_S / once_s)))
    times_s = group.largest([_block_s(call, calls, clock, group) / calls for _ in range(BLOCKS)])
    rate = nbytes / median(times_s)
    return replace(
        blank,
        calls=calls * BLOCKS,
        median_s=median(times_s),
        best_s=min(times_s),
        algorithm_bytes_per_s=rate,
        link_bytes_per_s=rate * float(sent_share(operation, member.world)),
    )


def _block_s(call: Call, calls: int, clock: Clock, group: RankGroup) -> float:
    """Seconds of so many calls on this rank, from when all ranks are there."""
    group.barrier()
    start_s = clock.wall_s()
    for _ in range(calls):
        call()
    clock.synchronize()
    return clock.wall_s() - start_s


def _call(operation: str, elements: int, member: GroupMember) -> Call:
    device = torch.device(member.device)
    whole = torch.randn(elements, generator=torch.Generator().manual_seed(member.rank)).to(device)
    part = whole[: elements // member.world].clone()
    other = torch.empty_like(whole)
    calls: dict[str, Call] = {
        "all_reduce": lambda: dist.all_reduce(whole, dist.ReduceOp.AVG if device.type == "cuda" else dist.ReduceOp.MAX),
        "all_gather": lambda: dist.all_gather_into_tensor(other, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }
    return calls[operation]
