"""Builds and edits operation tables by hand, as a tracer would record them of a step, but without a model or a device.

    table = Table()
    x, w = table.input((b, h)), table.weight((h, 4 * h))
    y = table.relu(table.mm(x, w))
    total(table.done().operations).model_flop          # 2·b·h·4h

Sizes are ints or sympy expressions; nothing runs. `insert`, `replaced` and `remove` take a `StepTable` and return a new
one, with indices and lifetimes renumbered. They raise ValueError for an operation that reads what no operation made.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from analysis.operators.cost import Size
from analysis.operators.registry import kind_of
from analysis.operators.traffic import itemsize
from results.records.counts import PHASES, Operation, Storage

Shape = Sequence[Size]

LASTING = frozenset(("weight", "buffer", "input", "optimizer_state", "gradient"))
"""Roles of storages that outlive the step."""


@dataclass(frozen=True)
class StepTable:
    """Operations in order, numbered from 0, and the storages that they read and write."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor that an operation reads or returns. maker: index of the operation that made it; None: it existed before
    the step."""

    storage: int
    shape: tuple[Size, ...]
    dtype: str
    maker: int | None


class Table:
    """A table under construction. Phase and module are those last set. first_storage: the first storage number."""

    def __init__(self, dtype: str = "float32", first_storage: int = 0) -> None:
        self.dtype = dtype
        self._first = first_storage
        self._operations: list[Operation] = []
        self._storages: list[Storage] = []
        self._phase, self._module = "forward", ""

    def input(self, shape: Shape, dtype: str = "") -> Tensor:
        """Add a tensor of the batch."""
        return self._initial(shape, dtype, "input")

    def weight(self, shape: Shape, dtype: str = "") -> Tensor:
        """Add a trained tensor."""
        return self._initial(shape, dtype, "weight")

    def scratch(self, shape: Shape, dtype: str = "") -> Tensor:
        """Add a tensor that several operations write parts of, through `into`."""
        return self._tensor(shape, dtype or self.dtype, "activation", len(self._operations))

    @contextlib.contextmanager
    def at(self, phase: str = "", module: str = "") -> Iterator[None]:
        """Set the phase and module of the operations inside. Raises ValueError for an unknown phase."""
        if phase and phase not in PHASES:
            raise ValueError(f"expected a phase of {', '.join(PHASES)}, got {phase!r}")
        before = self._phase, self._module
        self._phase, self._module = phase or self._phase, module or self._module
        try:
            yield
        finally:
            self._phase, self._module = before

    def call(
        self,
        name: str,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[Shape],
        *,
        dtype: str = "",
        of: Tensor | None = None,
        into: Tensor | None = None,
        role: str = "activation",
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        """Append any operation, by its name in `analysis/operators/registry.py`, and return its outputs. inputs: by
        argument name. of: the tensor whose gradient this computes. into: the tensor whose storage the outputs are
        written to; None: each output has a new storage."""
        index, kind = len(self._operations), dtype or self.dtype
        results = tuple(
            self._tensor(form, kind, role, index) if into is None else Tensor(into.storage, tuple(form), kind, index)
            for form in outputs
        )
        self._operations.append(
            Operation(
                index=index,
                name=name,
                kind=kind_of(name),
                phase=self._phase,
                module=self._module,
                sequence_nr=None,
                forward_index=None if of is None else of.maker,
                input_names=tuple(inputs),
                input_shapes=tuple(tensor.shape for tensor in inputs.values()),
                input_dtypes=tuple(tensor.dtype for tensor in inputs.values()),
                output_shapes=tuple(tensor.shape for tensor in results),
                output_dtypes=tuple(tensor.dtype for tensor in results),
                attributes=attributes,
                reads=tuple(tensor.storage for tensor in inputs.values()),
                writes=tuple(tensor.storage for tensor in results),
            )
        )
        return results

    def mm(self, left: Tensor, right: Tensor, **more: Any) -> Tensor:
        """Multiply (m, k) by (k, n). Raises ValueError for sizes that do not fit."""
        _fit("mm", left.shape, right.shape, 2, left.shape[-1], right.shape[0])
        return self.call("aten.mm", {"self": left, "mat2": right}, [(left.shape[0], right.shape[1])], **more)[0]

    def addmm(self, bias: Tensor, left: Tensor, right: Tensor, **more: Any) -> Tensor:
        """Compute bias + (m, k) by (k, n)."""
        _fit("addmm", left.shape, right.shape, 2, left.shape[-1], right.shape[0])
        inputs = {"self": bias, "mat1": left, "mat2": right}
        return self.call("aten.addmm", inputs, [(left.shape[0], right.shape[1])], **more)[0]

    def bmm(self, left: Tensor, right: Tensor, **more: Any) -> Tensor:
        """Multiply (b, m, k) by (b, k, n)."""
        _fit("bmm", left.shape, right.shape, 3, left.shape[-1], right.shape[1])
        form = (left.shape[0], left.shape[1], right.shape[2])
        return self.call("aten.bmm", {"self": left, "mat2": right}, [form], **more)[0]

    def embedding(self, weight: Tensor, indices: Tensor, **more: Any) -> Tensor:
        """Gather rows of a table: (…) → (…, width)."""
        form = (*indices.shape, weight.shape[-1])
        return self.call("aten.embedding", {"weight": weight, "indices": indices}, [form], **more)[0]

    def add(self, left: Tensor, right: Tensor, **more: Any) -> Tensor:
        """Return left + right; right has left's sizes or is broadcast to them."""
        return self._two("aten.add", left, right, more)

    def mul(self, left: Tensor, right: Tensor, **more: Any) -> Tensor:
        """Return left · right; right has left's sizes or is broadcast to them."""
        return self._two("aten.mul", left, right, more)

    def relu(self, x: Tensor, **more: Any) -> Tensor:
        """Return max(x, 0)."""
        return self.pointwise("aten.relu", x, **more)

    def sigmoid(self, x: Tensor, **more: Any) -> Tensor:
        """Return 1 ÷ (1 + exp(-x))."""
        return self.pointwise("aten.sigmoid", x, **more)

    def tanh(self, x: Tensor, **more: Any) -> Tensor:
        """Return tanh(x)."""
        return self.pointwise("aten.tanh", x, **more)

    def softmax(self, x: Tensor, **more: Any) -> Tensor:
        """Compute softmax over the last dimension."""
        return self.call("aten._softmax", {"self": x}, [x.shape], dim=-1, half_to_float=False, **more)[0]

    def pointwise(self, name: str, x: Tensor, **more: Any) -> Tensor:
        """Append any operation of one tensor that returns one of the same sizes."""
        return self.call(name, {"self": x}, [x.shape], **more)[0]

    def mm_backward(self, out: Tensor, grad: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of both factors of `out = mm(left, right)`: gradᵒᵘᵗ · rightᵀ and leftᵀ · gradᵒᵘᵗ, in the
        phase backward."""
        m, n = out.shape
        k = left.shape[1]
        turned_right, turned_left = replace(right, shape=(n, k)), replace(left, shape=(k, m))
        with self.at(phase="backward"):
            return self.mm(grad, turned_right, of=out), self.mm(turned_left, grad, of=out, role="gradient")

    def done(self) -> StepTable:
        """Return the table so far, with the lifetime of each storage."""
        last = {storage: operation.index for operation in self.operations for storage in operation.reads}
        died = (
            storage if storage.role in LASTING else replace(storage, died_index=last.get(storage.id))
            for storage in self.storages
        )
        return StepTable(self.operations, tuple(died))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations so far."""
        return tuple(self._operations)

    @property
    def storages(self) -> tuple[Storage, ...]:
        """The storages so far."""
        return tuple(self._storages)

    def _two(self, name: str, left: Tensor, right: Tensor, more: Mapping[str, Any]) -> Tensor:
        for a, b in zip(reversed(left.shape), reversed(right.shape), strict=False):
            if b != 1 and a != b:
                raise ValueError(f"{name}: expected sizes that broadcast, got {left.shape} and {right.shape}")
        return self.call(name, {"self": left, "other": right}, [left.shape], **more)[0]

    def _initial(self, shape: Shape, dtype: str, role: str) -> Tensor:
        return self._tensor(shape, dtype or self.dtype, role, None)

    def _tensor(self, shape: Shape, dtype: str, role: str, maker: int | None) -> Tensor:
        sizes = tuple(shape)
        born = -1 if maker is None else maker
        storage = Storage(self._first + len(self._storages), prod(sizes) * itemsize(dtype), role, born, None)
        self._storages.append(storage)
        return Tensor(storage.id, sizes, dtype, maker)


def _fit(name: str, left: Shape, right: Shape, rank: int, inner: Size, other: Size) -> None:
    same_batch = rank == 2 or left[0] == right[0]
    if len(left) != rank or len(right) != rank or inner - other != 0 or not same_batch:
        raise ValueError(f"{name}: expected sizes that fit, got {tuple(left)} by {tuple(right)}")


BEFORE = -1
"""born_index of a storage that existed before the step."""


@dataclass(frozen=True)
class Entry:
    """One operation of the new table. stands_for: positions in the old table that it replaces. Its `forward_index` is a
    position in the old table."""

    operation: Operation
    stands_for: tuple[int, ...] = ()


def insert(
    table: StepTable, position: int, operations: Sequence[Operation], storages: Iterable[Storage] = ()
) -> StepTable:
    """Insert operations in front of `position`, or at the end if `position` is the table's length."""
    _check([position], len(table.operations))
    entries = [*_same(table)]
    entries[position:position] = [Entry(operation) for operation in operations]
    return rebuilt(table, entries, storages)


def remove(table: StepTable, positions: Iterable[int]) -> StepTable:
    """Return the table without these operations. Raises ValueError where another reads what only they made."""
    return replaced(table, dict.fromkeys(positions, ()))


def replaced(
    table: StepTable, instead: Mapping[int, Sequence[Operation]], storages: Iterable[Storage] = ()
) -> StepTable:
    """Return the table with the operation at each of these positions replaced by others (none: removed)."""
    _check(instead, len(table.operations) - 1)
    entries: list[Entry] = []
    for old in _same(table):
        position = old.stands_for[0]
        if position in instead:
            entries += [Entry(operation, (position,)) for operation in instead[position]]
        else:
            entries.append(old)
    return rebuilt(table, entries, storages)


def rebuilt(table: StepTable, entries: Sequence[Entry], storages: Iterable[Storage] = ()) -> StepTable:
    """Return the table of these entries, renumbered and relinked. storages: those that the old table lacks.

    Raises ValueError for a storage that is unknown, or is read before any operation made it.
    """
    moved: dict[int, int] = {}
    ends: dict[int, int] = {}
    for index, entry in enumerate(entries):
        for old in entry.stands_for:
            moved.setdefault(old, index)
            ends[old] = index
    operations = tuple(
        replace(
            entry.operation,
            index=index,
            forward_index=None if entry.operation.forward_index is None else moved.get(entry.operation.forward_index),
        )
        for index, entry in enumerate(entries)
    )
    known = {storage.id: storage for storage in (*table.storages, *storages)}
    return StepTable(operations, _lives(operations, known, ends))


def _lives(
    operations: Sequence[Operation], known: Mapping[int, Storage], ends: Mapping[int, int]
) -> tuple[Storage, ...]:
    """Return the storages in order of number, with births and deaths in the new numbering. ends: old index → last new
    one."""
    birth: dict[int, int] = {}
    used: dict[int, int] = {}
    for operation in operations:
        for storage in (*operation.reads, *operation.writes):
            if storage >= 0 and storage not in known:
                raise ValueError(
                    f"{operation.name} at index {operation.index}: expected a storage of the table, got {storage}"
                )
            used[storage] = operation.index
        for storage in operation.reads:
            if storage >= 0 and known[storage].born_index != BEFORE and storage not in birth:
                raise ValueError(
                    f"{operation.name} at index {operation.index} reads storage {storage}, which nothing made before"
                )
        for storage in operation.writes:
            birth.setdefault(storage, operation.index)
    alive = []
    for number, record in sorted(known.items()):
        if number not in used and record.born_index != BEFORE:
            continue
        born = BEFORE if record.born_index == BEFORE else birth[number]
        died = record.died_index
        if died is not None:
            died = max(ends.get(died, BEFORE), used.get(number, BEFORE))
        alive.append(replace(record, born_index=born, died_index=died))
    return tuple(alive)


def _same(table: StepTable) -> list[Entry]:
    return [Entry(operation, (position,)) for position, operation in enumerate(table.operations)]


def _check(positions: Iterable[int], last: int) -> None:
    for position in positions:
        if not 0 <= position <= last:
            raise ValueError(f"expected a position from 0 to {last}, got {position}")


def renumbered(table: StepTable) -> StepTable:
    """Renumber storages from 0, as a tracer does, because an edit may have removed some."""
    numbers = {storage.id: number for number, storage in enumerate(table.storages)}
    operations = (
        replace(
            operation,
            reads=tuple(numbers[storage] for storage in operation.reads),
            writes=tuple(numbers[storage] for storage in operation.writes),
        )
        for operation in table.operations
    )
    return StepTable(tuple(operations), tuple(replace(storage, id=numbers[storage.id]) for storage in table.storages))
