"""What a recorder says of a collective beside its time: kind, group, members and bytes.

On a device a collective is a kernel of NCCL or RCCL (gpu_user_annotation and host calls repeat it); newer recorders
write its name, sizes and group beside it, of older ones the kernel's name says the kind. Without a device it is the
annotation of the backend's thread ("gloo:all_reduce").
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
    "sendrecv": "send_recv", "send": "send", "recv": "recv",
}  # fmt: skip
"""How names begin, in small letters without anything between, of Kineto's "Collective name", kernels (among old ones
AllReduceRingLLKernel) and annotations → kind. What begins with another is after it."""

NAMED = re.compile(
    r"(?:void )?(?:nccl|rccl|msccl)(?:Symk)?(?:Dev)?(?:Kernel)?_?([A-Za-z]+?)(?:_|\(|<|$)"
    r"|(?:gloo|nccl|mpi|ucc|xccl):([A-Za-z_]+)"
)
"""ncclDevKernel_AllReduce_Sum_f32_RING_LL(…), void ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(…), gloo:all_reduce."""

ON_HOST = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):[A-Za-z_]+")

DTYPE_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "long": 8, "long int": 8, "int": 4, "short": 2, "char": 1,
    "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "c10::half": 2, "c10::bfloat16": 2, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
}  # fmt: skip

ARGUMENTS = ("Collective name", "In msg nelems", "dtype", "Group size", "Process Group Name", "Process Group Ranks")
"""Kineto's names of what it says of a collective."""


class Collective(NamedTuple):
    """One call; -1 and "" for what is not recorded. ranks: the members; nbytes: that this rank gives."""

    kind: str
    group: str = ""
    group_size: int = -1
    ranks: str = ""
    nbytes: int = -1


def collective_of(name: str, args: Mapping[str, Any], sizes: Any = None, dtypes: Any = None) -> Collective | None:
    """The collective that a kernel or annotation of this name is; None for any other. args: Kineto's; sizes, dtypes: of
    its tensors. A kind that is not known stays as it is."""
    named = NAMED.match(name)
    if named is None:
        return None
    word = str(args.get("Collective name") or named[1] or named[2])
    letters = re.sub(r"[^a-z]", "", word.lower())
    size = args.get("Group size")
    return Collective(
        next((kind for begin, kind in KINDS.items() if letters.startswith(begin)), word),
        str(args.get("Process Group Name", "")),
        size if isinstance(size, int) else -1,
        str(args.get("Process Group Ranks", "")),
        _nbytes(args, sizes, dtypes),
    )


def _nbytes(args: Mapping[str, Any], sizes: Any, dtypes: Any) -> int:
    elements, dtype = args.get("In msg nelems"), str(args.get("dtype", "")).lower()
    if isinstance(elements, int) and dtype in DTYPE_BYTES:
        return elements * DTYPE_BYTES[dtype]
    total = 0
    for shape, kind in zip(sizes or (), dtypes or (), strict=False):
        if shape and (kind.lower() not in DTYPE_BYTES or not all(type(size) is int for size in shape)):
            return -1
        total += prod(shape) * DTYPE_BYTES[kind.lower()] if shape else 0
    return total if sizes and dtypes else -1
