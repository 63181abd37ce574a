"""Makes process groups and device meshes of a plan's axes, over real ranks or torch's fake group; times collectives.

`rank_group` joins a real rank for one cell (workload, batch size, precision) and yields a `RankGroup`, whose first rank
announces each block of steps. `rank_mesh` and `fake_mesh` take the axes and return meshes. A step's collectives run
over NCCL on GPUs and gloo on CPUs. Announcements go over a separate gloo group, outside the timed part. If a rank
fails, collectives of the others raise. The fake group (`torch.testing._internal.distributed.fake_pg`) is a world in one
process whose collectives move nothing. `collective_rates` returns the rates of all_reduce, all_gather, reduce_scatter
and all_to_all of float32. A block of collectives begins at a barrier and lasts as long as on the slowest rank. Not
claimed: that collectives within a step reach these rates.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from analysis.devices.ceilings import COLLECTIVES, CollectiveRate, sent_share
from measure.operations.control_flow import replaced_attribute
from measure.timing.clocks import Clock, clock_for
from measure.timing.rank_blocks import END, BlockOrder
from results.errors import Unavailable, one_line

if TYPE_CHECKING:
    from analysis.parallel.rank_grid import RankGrid
    from measure.operations.fake_mode import FakeMode


_PROPAGATION = "_propagate_tensor_meta_non_cached"
"""DTensor's method that runs an operation on stand-ins of the whole tensors."""


@contextlib.contextmanager
def fake_mesh(sizes: Mapping[str, int], rank: int) -> Iterator[DeviceMesh]:
    """Yield the mesh of these axes, the last axis innermost, as this rank sees it.

    Raises Unavailable where torch has no fake group, or this process is in a group already.
    """
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as fault:
        raise Unavailable(f"this build of torch has no fake process group: {fault}") from fault
    if dist.is_initialized():
        raise Unavailable("expected a process without a process group, got one that has joined one")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=math.prod(sizes.values()))
    try:
        clear_answers()
        yield init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        dist.destroy_process_group()


def clear_answers() -> None:
    """Clear DTensor's caches, whose entries may belong to the mesh of a group that no longer exists."""
    from torch.distributed.tensor._redistribute import _gen_transform_infos
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    _gen_transform_infos.cache_clear()


def no_global_shapes(mode: FakeMode) -> contextlib.AbstractContextManager[None]:
    """Return a context in which this mode does not show the operations that DTensor runs on stand-ins of whole tensors.

    Raises Unavailable for a torch that runs them elsewhere, since they would be counted as work.
    """
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    ask: Any = getattr(ShardingPropagator, _PROPAGATION, None)
    if ask is None:
        raise Unavailable(f"torch {torch.__version__}: DTensor has no {_PROPAGATION}: local work cannot be told apart")

    def unwatched(propagator: Any, schema: Any) -> Any:
        with mode.watched_by(None):
            return ask(propagator, schema)

    return replaced_attribute(ShardingPropagator, _PROPAGATION, unwatched)


def rank_mesh(grid: RankGrid, device: torch.device) -> DeviceMesh:
    """Return the axes of a plan over the ranks of the default group."""
    return init_device_mesh(device.type, tuple(grid.sizes.values()), mesh_dim_names=tuple(grid.sizes))


def group_axes(*meshes: DeviceMesh) -> dict[str, str]:
    """Return name of a process group, as operators have it → axis of a mesh."""
    return {mesh.get_group(axis).group_name: axis for mesh in meshes for axis in mesh.mesh_dim_names or ()}


def expert_mesh(mesh: DeviceMesh, experts: int) -> DeviceMesh:
    """Return a mesh "pp", "edp", "ep", "tp" over the ranks of a mesh "pp", "dp", "tp": "dp" is divided into "edp" and
    "ep", whose ranks together have all experts. An axis "ep" of all ranks gets a separate group: torch would give it
    the default group, which another axis of all ranks has, too."""
    stages, tensor = mesh["pp"].size(), mesh["tp"].size()
    sizes = stages, mesh.size() // (stages * tensor * experts), experts, tensor
    backend: Any = {"ep": dist.get_backend()} if experts == mesh.size() else None
    return init_device_mesh(mesh.device_type, sizes, mesh_dim_names=("pp", "edp", "ep", "tp"), backend_override=backend)


def copies_of_experts(wide: DeviceMesh) -> DeviceMesh:
    """Return the ranks that have the same experts. wide: of `expert_mesh`."""
    return wide["edp", "tp"]._flatten("experts") if wide["tp"].size() > 1 else wide["edp"]


@dataclass(frozen=True)
class GroupMember:
    """A rank's position in a group. address: host and port of the store where ranks meet; prefix: of this group's keys
    in the store; timeout_s: seconds after which a collective fails on ranks that wait for another one; single_host:
    whether all ranks are on one host."""

    rank: int
    world: int
    device: str
    address: tuple[str, int]
    prefix: str
    timeout_s: float
    single_host: bool = False


LOOPBACK = "lo"


class RankGroup:
    """The group that a process is in within `rank_group`. Methods raise RuntimeError where another rank is gone."""

    def __init__(self, rank: int, control: Any) -> None:
        self.rank = rank
        self._control = control

    def announce(self, steps: int, part: str, lead_in_steps: int = 0) -> None:
        """Announce a block from the first rank; all ranks begin it."""
        self.share(BlockOrder(steps, part, lead_in_steps))
        if part != END:
            self.barrier()

    def order(self) -> BlockOrder:
        """Wait for the next block, on all ranks but the first; all ranks begin it."""
        order: BlockOrder = self.share(None)
        if order.part != END:
            self.barrier()
        return order

    def share(self, value: Any) -> Any:
        """Return the first rank's value, on all ranks."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the maximum over all ranks of each value."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._control)
        return [float(value) for value in tensor]

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier(group=self._control)


@contextlib.contextmanager
def rank_group(member: GroupMember) -> Iterator[RankGroup]:
    """Join the group of a member. Raises RuntimeError (of torch.distributed) if a rank does not come."""
    on_cuda = member.device.startswith("cuda")
    if member.single_host and LOOPBACK in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # works even if the host's name does not resolve
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
    """Return a row for each collective and size, the same on all ranks. sizes: bytes of the buffer, rounded up to
    elements that ranks can share. The first call of each size is left out. A collective that the backend lacks has a
    row with the reason."""
    if member.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(member.device))
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
    """Return the seconds of a block of calls on this rank, from the moment when all ranks have arrived."""
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
