"""A rank of a world that is not there: a device mesh over torch's fake process group, in one process.

The fake group answers each collective at once and moves nothing; only sizes matter. Its module is torch's own for tests
(`torch.testing._internal.distributed.fake_pg`). DTensor asks what an operation would make of the whole tensors; in a
fake mode that question is an operation on fake tensors, and `no_global_shapes` keeps it from being counted.

Device meshes of a plan's axes, over real ranks or over those of `fake_group`, and which group is of which axis.

A rank's place among others. Knows no torch: whoever hands it to the process that takes it has none.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch.distributed import get_backend
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from results.errors import Unavailable

if TYPE_CHECKING:
    import torch

    from analysis.parallel.rank_grid import RankGrid
    from measure.fake.mode import FakeMode


_PROPAGATION = "_propagate_tensor_meta_non_cached"
"""DTensor's method that runs an operation on stand-ins of the whole tensors."""


@contextlib.contextmanager
def fake_mesh(sizes: Mapping[str, int], rank: int) -> Iterator[DeviceMesh]:
    """The mesh of these axes, the last one innermost, as this rank of it sees it.

    Raises Unavailable where torch has no fake group, or this process is in a group already.
    """
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as fault:
        raise Unavailable(f"this build of torch has no fake process group: {fault}") from fault
    if torch.distributed.is_initialized():
        raise Unavailable("expected a process without a process group, got one that has joined one")
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=math.prod(sizes.values()))
    try:
        clear_answers()
        yield init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        torch.distributed.destroy_process_group()


def clear_answers() -> None:
    """Forget what DTensor knows of operations: it knows them on the mesh of a group that is no more."""
    from torch.distributed.tensor._redistribute import _gen_transform_infos
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    _gen_transform_infos.cache_clear()


@contextlib.contextmanager
def no_global_shapes(mode: FakeMode) -> Iterator[None]:
    """DTensor's questions about whole tensors are not shown to the watcher of this mode.

    Raises Unavailable where this torch asks them elsewhere: they would be counted as work.
    """
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    ask: Any = getattr(ShardingPropagator, _PROPAGATION, None)
    if ask is None:
        raise Unavailable(f"torch {torch.__version__}: DTensor has no {_PROPAGATION}: local work cannot be told apart")

    def unheard(propagator: Any, schema: Any) -> Any:
        with mode.unwatched():
            return ask(propagator, schema)

    setattr(ShardingPropagator, _PROPAGATION, unheard)
    try:
        yield
    finally:
        setattr(ShardingPropagator, _PROPAGATION, ask)


def rank_mesh(grid: RankGrid, device: torch.device) -> DeviceMesh:
    """The axes of a plan over the ranks of the default group."""
    return init_device_mesh(device.type, tuple(grid.sizes.values()), mesh_dim_names=tuple(grid.sizes))


def group_axes(*meshes: DeviceMesh) -> dict[str, str]:
    """Name of a process group, as operators have it → the axis of a mesh."""
    return {mesh.get_group(axis).group_name: axis for mesh in meshes for axis in mesh.mesh_dim_names or ()}


def expert_mesh(mesh: DeviceMesh, experts: int) -> DeviceMesh:
    """Another view of a mesh "pp", "dp", "cp", "tp": "ep" in place of "cp", its ranks having all experts together. Its
    groups are its own: torch gives an axis of all ranks the default group, which another axis of all ranks has, too."""
    stages, tensor = mesh["pp"].size(), mesh["tp"].size()
    sizes = stages, mesh.size() // (stages * tensor * experts), experts, tensor
    own: Any = {"ep": get_backend()} if experts == mesh.size() else None
    return init_device_mesh(mesh.device_type, sizes, mesh_dim_names=("pp", "edp", "ep", "tp"), backend_override=own)


def copies_of_experts(wide: DeviceMesh) -> DeviceMesh:
    """The ranks that have the same experts. wide: of `expert_mesh`."""
    return wide["edp", "tp"]._flatten("experts") if wide["tp"].size() > 1 else wide["edp"]


def copies_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that have, or share, the same weights: the axes "dp" and "cp" as one."""
    return mesh["dp", "cp"]._flatten("copies") if mesh["cp"].size() > 1 else mesh["dp"]


@dataclass(frozen=True)
class GroupMember:
    """A rank's place in a group. address: host and port of the store where ranks meet; prefix: of this group's keys
    in it; timeout_s: of a collective, after which the ranks that wait for one that hangs fail; alone: all ranks are on
    one host."""

    rank: int
    world: int
    device: str
    address: tuple[str, int]
    prefix: str
    timeout_s: float
    alone: bool = False
