"""A rank of a world that is not there: a device mesh over torch's fake process group, in one process.

The fake group answers each collective at once and moves nothing; only sizes matter. Its module is torch's own for tests
(`torch.testing._internal.distributed.fake_pg`). DTensor asks what an operation would make of the whole tensors; in a
fake mode that question is an operation on fake tensors, and `no_global_shapes` keeps it from being counted.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from results.errors import Unavailable

if TYPE_CHECKING:
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
