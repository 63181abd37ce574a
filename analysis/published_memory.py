"""What others measured of a CUDA device's memory in a training step: `published_memory.csv`, read at its sources.

A row has the step (model, sizes, batch, precision, optimizer), what was read off (`quantity`) with half of its last
digit, the device and torch where the source says them, its address, and what had to be assumed. Nothing here was
measured by us, and it is no sample: it is what was found with conditions enough to predict the same number.

`as_measured` turns a step's ledger into the one that was measured where a source's loop differs from ours: further
copies of the parameters (the buckets of data parallelism, a moving average), gradients that are let go only after the
forward pass, a library's workspace. Not claimed: that a source's own code did nothing else beside.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.caching_allocator import replay, rounded
from analysis.footprint import BEFORE, live_bytes, lives
from results.records import Operation, Storage
from results.rows import Record

TABLE = Path(__file__).with_name("published_memory.csv")

TENSORS, ALLOCATED, RESERVED, PROCESS = "tensors", "allocated", "reserved", "process"
QUANTITIES = (TENSORS, ALLOCATED, RESERVED, PROCESS)
"""tensors: the highest of all blocks but workspaces; allocated, reserved: `max_memory_allocated` and
`max_memory_reserved`; process: what the driver says of the process, its context included."""

STEP, FORWARD = "step", "forward"
MOMENTS = (STEP, FORWARD)
"""Whether a row is the highest of a step, or what is there after its forward pass."""

MATERIALIZED = "materialized"
ATTENTIONS = ("", MATERIALIZED)
"""Whether a source's attention keeps its matrix of weights, as all did before torch 2.0; "": as the model does here."""


@dataclass(frozen=True, kw_only=True)
class Published(Record):
    """One measurement.

    hyper: sizes of the model. loop: the optimizer works on one parameter after the other. copies: of the parameters
    that are there all the time beside them. late_zero: the gradients of the step before are let go after the forward
    pass. capability: of the device, where cuBLAS's workspace is in the count; "": it is not. within_bytes: half of the
    last digit that the source prints.
    """

    name: str
    model: str
    batch_size: int
    precision: str
    optimizer: str
    quantity: str
    measured_bytes: int
    within_bytes: int
    source: str
    assumed: str
    hyper: Any = None
    loop: bool = False
    accumulate: int = 1
    attention: str = ""
    moment: str = STEP
    copies: int = 0
    late_zero: bool = False
    capability: str = ""
    gpu: str = ""
    torch: str = ""


@functools.cache
def published() -> tuple[Published, ...]:
    """All rows of the table. Raises ValueError for one that is not of its form, or a name that is there twice."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        found = tuple(Published.from_row(row) for row in csv.DictReader(file))
    for each in found:
        for value, known in (
            (each.quantity, QUANTITIES),
            (each.moment, MOMENTS),
            (each.attention, ATTENTIONS),
        ):
            if value not in known:
                raise ValueError(f"{each.name}: expected one of {known}, got {value!r}")
        if not each.source.startswith("https://") or each.measured_bytes <= each.within_bytes:
            raise ValueError(f"{each.name}: expected a source's address and a number larger than its last digit")
    if len({each.name for each in found}) != len(found):
        raise ValueError("expected each name once")
    return found


def as_measured(
    operations: Sequence[Operation],
    storages: Iterable[Storage],
    copies: int = 0,
    late_zero: bool = False,
    workspace_bytes: Sequence[int] = (),
) -> list[Storage]:
    """The storages of a step, and what a source's loop has beside them. workspace_bytes: there all the time."""
    given = list(storages)
    fresh = max((each.id for each in given), default=-1) + 1
    more = [replace(each, born_index=BEFORE, died_index=None) for each in given if each.role == "weight"] * copies
    if late_zero:
        last = max(each.index for each in operations if each.phase in ("forward", "loss"))
        gradients = [each for each in given if each.role == "gradient" and each.died_index is None]
        more += [replace(each, born_index=BEFORE, died_index=last) for each in gradients]
    more += [Storage(0, nbytes, "buffer", BEFORE, None) for nbytes in workspace_bytes]
    return given + [replace(each, id=fresh + place) for place, each in enumerate(more)]


def predicted_bytes(operations: Sequence[Operation], storages: Sequence[Storage], quantity: str, moment: str) -> int:
    """What the ledger says of a quantity. Of a process: what is reserved, without the device's context."""
    if moment == FORWARD:
        last = max(each.index for each in operations if each.phase == "forward")
        kept = [each for each in storages if lives(each, last) and each.died_index != last]
        if quantity == ALLOCATED:
            return sum(rounded(each.nbytes) for each in kept)
        operations, storages = operations[: last + 1], [each for each in storages if each.born_index <= last]
    if quantity == TENSORS:
        return max(live_bytes(storages, len(operations)))
    blocks = replay(storages, len(operations))
    return blocks.allocated_bytes if quantity == ALLOCATED else blocks.reserved_bytes
