"""Collectives timed alone: all_reduce, all_gather, reduce_scatter and all_to_all of float32, over sizes.

A block of calls begins at a barrier and is as long as on the slowest rank; the first call of each size is left out,
because libraries choose algorithms and connect in it. Operands are random normal.

Not claimed: what a step's collectives reach, which share the link and the processors with computing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from analysis.parallel.collective_rates import COLLECTIVES, CollectiveRate, sent_share
from measure.parallel.member import GroupMember
from measure.parallel.real_group import RankGroup, rank_group
from measure.timing.clocks import Clock, clock_for
from results.errors import one_line

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
