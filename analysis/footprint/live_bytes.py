"""Computes the live bytes at each operation of a training step: the eager peak, its categories and its storages.

`footprint` takes a traced table of operations and storages, and returns a `Footprint`. Views and in-place writes share
a storage. A storage counts once, from the operation that made it to the last operation before it was freed. A moment is
an operation while it runs, with inputs and outputs both alive, or `BEFORE`, the moment before the first operation.
Where two gradients of one tensor meet, autograd adds in place (`input_buffer.cpp`), except under a dispatch mode such
as the tracer's. `reuse_gradients` restores the in-place addition. On a CPU the result was compared with the allocator
at each operation. Not claimed: memory inside kernels, or the generator's state of a checkpoint. With storages of
unknown size (sparse, opaque, oneDNN's LSTM workspace), the peak is a lower bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from analysis.operators.traffic import UNSIZED
from results.errors import Inconsistent
from results.records.counts import Operation, Storage

CAST = "cast"
CATEGORIES = ("weight", "buffer", "gradient", "optimizer_state", "input", "activation", CAST, "temporary")
"""Roles of storages, in the order in which a figure stacks them. CAST holds activations and temporaries that are copies
in another dtype, mostly autocast's."""

_ROLES = tuple(name for name in CATEGORIES if name != CAST)
_COPIES = ("aten._to_copy",)

BEFORE = -1
"""The moment before the first operation."""


@dataclass(frozen=True)
class StepMoment:
    """A moment of the step, named by the operation that runs. index -1 is before the first operation, where the other
    fields are empty."""

    index: int
    operation: str
    module: str
    phase: str


@dataclass(frozen=True)
class LiveStorage:
    """A storage that is alive at the peak, and the operation that made it.

    module: that of the operation; of the first reader, where the storage existed before the step.
    """

    storage: int
    nbytes: int
    category: str
    maker: StepMoment
    module: str = ""


@dataclass(frozen=True)
class Footprint:
    """Live bytes of a step, with one entry per moment: before the first operation, then while each operation runs.

    timeline: category → bytes. total_bytes: their sum. at_least_bytes: its maximum. held: storages alive there, the
    largest first. unknown: storages without a size, which are not counted. ledger: all others, after `reuse_gradients`.
    """

    timeline: Mapping[str, tuple[int, ...]]
    total_bytes: tuple[int, ...]
    at_least_bytes: int
    peak_moment: StepMoment
    by_category: Mapping[str, int]
    held: tuple[LiveStorage, ...]
    unknown: tuple[int, ...]
    ledger: tuple[Storage, ...]

    @property
    def peak_bytes(self) -> int | None:
        """Bytes at the peak; None where a storage has no known size: then `at_least_bytes` is a lower bound."""
        return None if self.unknown else self.at_least_bytes


def footprint(operations: Sequence[Operation], storages: Iterable[Storage]) -> Footprint:
    """Return the eager footprint of a step. Among moments with equal bytes the first is the peak.

    Raises ValueError for sizes that are expressions, for an unknown role, and for operations that are not numbered from
    0; Inconsistent for a storage that dies before it is born or lives outside of the step.
    """
    known, unknown = _known_storages(operations, tuple(storages))
    known = reuse_gradients(operations, known)
    category = categories(operations, known)
    timeline = {
        name: live_bytes((storage for storage in known if category[storage.id] == name), len(operations))
        for name in CATEGORIES
    }
    total = tuple(map(sum, zip(*timeline.values(), strict=True)))
    peak = max(total)
    moment = total.index(peak)
    index = moment + BEFORE
    readers: dict[int, str] = {}
    for operation in reversed(operations):
        readers.update(dict.fromkeys(operation.reads, operation.module))
    held = []
    for storage in known:
        if storage.born_index <= index and (storage.died_index is None or index <= storage.died_index):
            maker = moment_at(operations, storage.born_index)
            module = readers.get(storage.id, "") if maker.index == BEFORE else maker.module
            held.append(LiveStorage(storage.id, storage.nbytes or 0, category[storage.id], maker, module))
    return Footprint(
        timeline=timeline,
        total_bytes=total,
        at_least_bytes=peak,
        peak_moment=moment_at(operations, index),
        by_category={name: row[moment] for name, row in timeline.items()},
        held=tuple(sorted(held, key=lambda live: (-live.nbytes, live.storage))),
        unknown=unknown,
        ledger=tuple(known),
    )


def peak_bytes(operations: Sequence[Operation], storages: Iterable[Storage]) -> int:
    """Return the peak of `footprint` only, in a fraction of its time. Raises as `footprint` does."""
    known, _ = _known_storages(operations, tuple(storages))
    return max(live_bytes(reuse_gradients(operations, known), len(operations)))


def categories(operations: Sequence[Operation], storages: Iterable[Storage]) -> dict[int, str]:
    """Return storage → one of CATEGORIES: its role, or CAST for an activation or temporary that is a copy in another
    dtype."""
    category = {}
    for storage in storages:
        category[storage.id] = storage.role
        if storage.role in ("activation", "temporary") and storage.born_index > BEFORE:
            maker = operations[storage.born_index]
            if maker.name in _COPIES and maker.output_dtypes and maker.output_dtypes[0] not in maker.input_dtypes[:1]:
                category[storage.id] = CAST
    return category


def reuse_gradients(operations: Sequence[Operation], storages: Iterable[Storage]) -> list[Storage]:
    """Return the storages, where a gradient whose memory a sum of gradients reuses ends before the sum.

    Such a sum is a plain `add` of two in the backward pass. The first operand that dies there is reused, if it is as
    large as the sum and has no view: autograd only overwrites memory that nothing else refers to.
    """
    by_id, viewed = {storage.id: storage for storage in storages}, set[int]()
    for operation in operations:
        if operation.kind == "view":
            viewed.update(operation.reads)
        if operation.name == "aten.add" and operation.phase == "backward" and len(operation.reads) == 2:
            summed = by_id.get(operation.writes[0])
            ends = [by_id[number] for number in operation.reads if number in by_id and number not in viewed]
            for storage in ends:
                here = summed and storage.died_index == operation.index == summed.born_index
                if here and summed and storage.nbytes == summed.nbytes:
                    by_id[storage.id] = replace(storage, died_index=operation.index - 1)
                    break
    return list(by_id.values())


def live_bytes(storages: Iterable[Storage], operations: int) -> tuple[int, ...]:
    """Return the bytes of these storages at each moment of a step. operations: number of its operations."""
    change = [0] * (operations + 2)
    for storage in storages:
        change[storage.born_index - BEFORE] += storage.nbytes
        if storage.died_index is not None:
            change[storage.died_index - BEFORE + 1] -= storage.nbytes
    return tuple(accumulate(change[:-1]))


def moment_at(operations: Sequence[Operation], index: int) -> StepMoment:
    """Return the moment of operation `index`; -1: before the first one."""
    if index == BEFORE:
        return StepMoment(BEFORE, "", "", "")
    operation = operations[index]
    return StepMoment(index, operation.name, operation.module, operation.phase)


def _known_storages(
    operations: Sequence[Operation], storages: Sequence[Storage]
) -> tuple[list[Storage], tuple[int, ...]]:
    """Return (storages of known size, numbers of the others)."""
    for position, operation in enumerate(operations):
        if operation.index != position:
            raise ValueError(f"expected operations numbered from 0, got {operation.index} at {position}")
    for storage in storages:
        last = len(operations) - 1 if storage.died_index is None else storage.died_index
        if storage.role not in _ROLES:
            raise ValueError(f"expected a role ({', '.join(_ROLES)}) of storage {storage.id}, got {storage.role!r}")
        if storage.nbytes is not None and not isinstance(storage.nbytes, int):
            raise ValueError(f"expected a number of bytes for storage {storage.id}, got {storage.nbytes}")
        if not BEFORE <= storage.born_index <= last < len(operations):
            raise Inconsistent(
                f"storage {storage.id} lives from operation {storage.born_index} to {storage.died_index} "
                f"of {len(operations)}"
            )
    unknown = unsized(operations, storages)
    return [storage for storage in storages if storage.id not in unknown], tuple(sorted(unknown))


def unsized(operations: Iterable[Operation], storages: Iterable[Storage]) -> set[int]:
    """Return the numbers of the storages of unknown size."""
    opaque = {operation.writes[-1] for operation in operations if operation.name in UNSIZED}
    return {
        storage.id for storage in storages if storage.nbytes is None or (storage.nbytes == 0 and storage.id in opaque)
    }
