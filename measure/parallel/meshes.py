"""Device meshes of a plan's axes, over real ranks or over those of `fake_group`, and which group is of which axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed import get_backend
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    import torch

    from analysis.parallel.rank_grid import RankGrid


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
