"""What one rank of a parallel step was seen to do in one micro-batch: the record that `measure.parallel` makes.

Sizes are local: those that the rank computes with, keeps, and hands to collectives. Values and times are in none of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.operators.attention_conventions import MASK_PAIRS, MASK_RULE
from analysis.operators.traffic import itemsize
from results.records.operations import Operation, Storage


@dataclass(frozen=True)
class LocalParameter:
    """What a rank has of one parameter. names: all that it has in the model; shape, dtype, nbytes: of this rank's part;
    trained: whether it needs a gradient; rows: of the first dimension, that replicas share and of which this is one
    replica's part, none after it having more; 0: each replica has all; element: path of the element of an outermost
    list of modules that it is in, "" for none."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    trained: bool
    rows: int = 0
    element: str = ""

    @property
    def numel(self) -> int:
        """Numbers in this part."""
        return math.prod(self.shape)

    def part(self, replica: int, replicas: int) -> LocalParameter:
        """What a replica has of it: rows are shared as torch.chunk does, the last ones having fewer or none."""
        if not self.rows:
            return self
        most = -(-self.rows // replicas)
        own = min(most, max(0, self.rows - replica * most))
        held = self.shape[0] or 1  # of this part; where it has no row, those after it have none
        return replace(self, shape=(own, *self.shape[1:]), nbytes=self.nbytes * own // held)


@dataclass(frozen=True)
class RankTrace:
    """A step of one rank. gradients: first names of parameters, in the order in which their gradients are complete;
    buffers: name → bytes; axes: name of a process group → axis of the mesh; experts: first names of the parameters that
    are divided over the expert axis."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    parameters: tuple[LocalParameter, ...]
    gradients: tuple[str, ...]
    buffers: Mapping[str, int] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)
    experts: frozenset[str] = frozenset()


def is_causal(trace: RankTrace) -> bool:
    """Whether the attention of a step hides later keys, by the kernel's own mask or by one that its module says is
    that. Raises ValueError for what torch's ring attention does not run: attention that is not in one kernel, that has
    another mask, or that is causal in some modules only."""
    calls = [each for each in trace.operations if each.kind == "attention" and each.phase == "forward"]
    if not calls or any(each.name != RING_KERNEL for each in calls):
        names = ", ".join(sorted({each.name for each in calls})) or "none in one kernel"
        raise ValueError(f"cp: expected attention by scaled_dot_product_attention, got {names}")
    rules = {_mask_rule(each) for each in calls}
    if len(rules) > 1 or not rules <= {CAUSAL, ALL}:
        known = {ALL: "no mask", CAUSAL: "the causal mask"}
        words = " and ".join(sorted(known.get(rule, rule or "a mask that is not known") for rule in rules))
        raise ValueError(
            f"cp: torch's ring attention has the causal mask everywhere or none, got attention with {words}"
        )
    return rules == {CAUSAL}


def _mask_rule(call: Operation) -> str:
    """Which keys each query sees; "" where a mask is not known."""
    if call.attributes.get("is_causal") is True:
        return CAUSAL
    if "attn_mask" not in call.input_names:
        return ALL
    return "" if MASK_PAIRS in call.attributes else str(call.attributes.get(MASK_RULE, ""))


def same_work(one: RankTrace, other: RankTrace) -> bool:
    """Whether two ranks do the same: the same operations on the same sizes, with the same memory and parameters.

    Numbers among the arguments may differ: a rank's first row of a vocabulary is one.
    """
    return (
        len(one.operations) == len(other.operations)
        and all(a == b for a, b in zip(map(_sizes, one.operations), map(_sizes, other.operations), strict=True))
        and list(map(_memory, one.storages)) == list(map(_memory, other.storages))
        and (one.parameters, one.gradients, one.buffers) == (other.parameters, other.gradients, other.buffers)
    )


def _sizes(operation: Operation) -> tuple[Any, ...]:
    return (
        operation.name, operation.phase, operation.module, operation.input_shapes, operation.input_dtypes,
        operation.output_shapes, operation.output_dtypes, operation.reads, operation.writes,
    )  # fmt: skip


def _memory(storage: Storage) -> tuple[Any, ...]:
    return storage.nbytes, storage.role, storage.born_index, storage.died_index


ALL, CAUSAL = "all", "causal"
"""Rules of masks that ring attention has."""

RING_KERNEL = "aten._scaled_dot_product_flash_attention_for_cpu"
"""The fused attention of a CPU, whose tensors fake ones are."""

EXPERT_COUNTS = "c10d.alltoall_base_"
"""The collective by which ranks that share experts tell each other how many tokens come."""

COLLECTIVES: Mapping[str, str] = {
    "_c10d_functional.all_reduce": "all_reduce",
    "_c10d_functional.all_reduce_": "all_reduce",
    "_c10d_functional.all_gather_into_tensor": "all_gather",
    "_c10d_functional.all_gather_into_tensor_out": "all_gather",
    "_c10d_functional.reduce_scatter_tensor": "reduce_scatter",
    "_c10d_functional.all_to_all_single": "all_to_all",
    "_c10d_functional.broadcast": "broadcast",
    "_c10d_functional.broadcast_": "broadcast",
    EXPERT_COUNTS: "all_to_all",
    "c10d._allgather_base_": "all_gather",
    "c10d._reduce_scatter_base_": "reduce_scatter",
}
"""Operator → what it is called here. Each has one tensor that goes in and one that comes out."""

WAITS = ("_c10d_functional.wait_tensor", "c10d.barrier")
"""Operators of communication that move nothing."""


def message_bytes(operation: Operation) -> int:
    """Bytes of the larger of what a collective takes and what it gives, on one rank: the size by which collectives are
    benchmarked (nccl-tests). Raises ValueError for a dtype whose size is not known."""
    shapes = (*operation.input_shapes, *operation.output_shapes)
    dtypes = (*operation.input_dtypes, *operation.output_dtypes)
    sizes: list[int] = [math.prod(shape) * itemsize(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return max(sizes)
