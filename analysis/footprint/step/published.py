"""What others measured of a CUDA device's memory in a training step: `published_memory.csv`, read at its sources.

A row has the step (model, sizes, batch, precision, optimizer), what was read off (`quantity`) with half of its last
digit, the device and torch where the source says them, its address, and what had to be assumed. Nothing here was
measured by us, and it is no sample: it is what was found with conditions enough to predict the same number.

`as_measured` turns a step's ledger into the one that was measured where a source's loop differs from ours: further
copies of the parameters (the buckets of data parallelism, a moving average), gradients that are let go only after the
forward pass or never, libraries' workspaces. Not claimed: that a source's own code did nothing else beside.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.footprint.step.caching_allocator import replay, rounded
from analysis.footprint.step.cudnn_workspaces import with_workspaces
from analysis.footprint.step.live_bytes import BEFORE, live_bytes, lives
from results.records import Operation, Record, Storage

TABLE = Path(__file__).with_name("published_memory.csv")

TENSORS, REQUESTED, ALLOCATED, RISEN = "tensors", "requested", "allocated", "risen"
RESERVED, PROCESS = "reserved", "process"
QUANTITIES = (TENSORS, REQUESTED, ALLOCATED, RISEN, RESERVED, PROCESS)
"""tensors: the highest of all that was asked for but workspaces; requested: of all; allocated, reserved:
`max_memory_allocated` and `max_memory_reserved`; risen: how far allocated bytes rise above what is there as the step
begins; process: what the driver says of the process, its context included if `assumed` does not say otherwise."""

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
    pass. kept: gradients are set to zero and stay, new ones are added to them. capability: of the device, where the
    workspace of cuBLAS is in the count; "": it is not. beside_bytes: what else lies there. cudnn: whether cuDNN's
    workspaces are in the count. within_bytes: half of the last digit that the source prints.
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
    kept: bool = False
    beside_bytes: int = 0
    cudnn: bool = False


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
    kept: bool = False,
    beside_bytes: Sequence[int] = (),
) -> list[Storage]:
    """The storages of a step, and what a source's loop has beside them. beside_bytes: there all the time."""
    given = list(storages)
    fresh = max((each.id for each in given), default=-1) + 1
    more = [replace(each, born_index=BEFORE, died_index=None) for each in given if each.role == "weight"] * copies
    gradients = [each for each in given if each.role == "gradient" and each.died_index is None]
    if late_zero:
        last = max(each.index for each in operations if each.phase in ("forward", "loss"))
        more += [replace(each, born_index=BEFORE, died_index=last) for each in gradients]
    if kept:
        more += [replace(each, born_index=BEFORE) for each in gradients]
        numbers = {each.id for each in gradients}
        given = [replace(each, died_index=each.born_index) if each.id in numbers else each for each in given]
    more += [Storage(0, nbytes, "buffer", BEFORE, None) for nbytes in beside_bytes]
    return given + [replace(each, id=fresh + place) for place, each in enumerate(more)]


def predicted_bytes(operations: Sequence[Operation], storages: Sequence[Storage], row: Published) -> int:
    """What the ledger says of a row's quantity. Of a process: what is reserved, without the device's context."""
    count = len(operations)
    if row.moment == FORWARD:
        last = max(each.index for each in operations if each.phase == "forward")
        if row.quantity == ALLOCATED:
            return sum(rounded(each.nbytes) for each in storages if lives(each, last) and each.died_index != last)
        operations, count = operations[: last + 1], last + 1
        storages = [each for each in storages if each.born_index <= last]
    if row.cudnn:
        storages, count = with_workspaces(operations, storages, row.precision)
    if row.quantity in (TENSORS, REQUESTED):
        return max(live_bytes(storages, count))
    blocks = replay(storages, count)
    if row.quantity == RISEN:
        before = replay((each for each in storages if each.born_index == BEFORE), 0)
        return blocks.allocated_bytes - before.allocated_bytes
    return blocks.allocated_bytes if row.quantity == ALLOCATED else blocks.reserved_bytes
