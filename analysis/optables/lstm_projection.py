"""An LSTM whose hidden state is projected to a smaller width before it is handed on (Sak et al. 2014, arXiv:1402.1128).

Of a layer of h hidden units and a projection to p: the recurrent product takes p in place of h, a product of h by p
comes after each step, and the layer gives p. Everything that reads it becomes as narrow: the matrices that multiply it,
their gradients, what is added to it, the input of a layer above. Forward and backward; the layers are split into steps
(`analysis/optables/lstm_unroll.py`), because PyTorch's oneDNN layers have no projection.

It is done by sizes: in operations that touch what the layer gives, each dimension of h becomes p. Not claimed: the
optimizer's work for the projection's own weights, which no operation of the table does. Refused: layers of two
directions, layers that are projected already, a tensor in which two dimensions are h (say sizes as symbols then), and a
view that mixes h with another dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from analysis.operators.cost import Size
from analysis.operators.registry import rule_of
from analysis.operators.traffic import itemsize, nothing
from analysis.optables.builder import StepTable
from analysis.optables.edits import BEFORE, fresh_storage
from analysis.optables.lstm_layers import FORMS, PROJECTION, Lstm, lstm_of
from analysis.optables.lstm_unroll import split_lstm
from results.records import Operation, Storage

Shape = tuple[Size, ...]


@dataclass
class _Change:
    """One width that becomes another. narrow: the storages in which it does."""

    old: Size
    new: Size
    narrow: set[int] = field(default_factory=set)

    def of(self, shape: Shape, operation: Operation) -> Shape:
        """A shape with the new width. Raises ValueError where two dimensions could be meant."""
        if sum(size == self.old for size in shape) > 1:
            raise ValueError(
                f"{operation.name} at index {operation.index}: two dimensions of {tuple(shape)} are {self.old}; "
                "write the sizes as symbols to tell them apart"
            )
        return tuple(self.new if size == self.old else size for size in shape)


def project_lstm(table: StepTable, projection: Size) -> StepTable:
    """The table with every LSTM projected to `projection`, in steps. Raises ValueError for one that cannot be, or if
    there is none."""
    operations, storages = list(table.operations), {storage.id: storage for storage in table.storages}
    forward = [op for op in operations if op.name in FORMS and not FORMS[op.name].backward and lstm_of(op)]
    if not forward:
        raise ValueError("expected a table with an LSTM; it has none")
    for whole in forward:
        lstm = lstm_of(operations[whole.index])
        assert lstm is not None
        _check(whole, lstm)
        change = _Change(lstm.hidden, projection)
        _widths(operations, storages, change, whole.index, lstm)
        _spread(operations, change)
        for number in change.narrow & storages.keys():
            its = storages[number]
            storages[number] = replace(its, nbytes=_scaled(its.nbytes, change))
    return split_lstm(StepTable(tuple(operations), tuple(storages.values())))


def _check(operation: Operation, lstm: Lstm) -> None:
    where = f"{operation.name} at index {operation.index}"
    if lstm.projected:
        raise ValueError(f"{where} is projected already, to {lstm.state}")
    if lstm.directions != 1:
        raise ValueError(f"{where} runs in two directions, which is not projected here")


def _scaled(nbytes: Size, change: _Change) -> Size:
    if isinstance(nbytes, int) and isinstance(change.old, int):
        return nbytes // change.old * change.new
    return nbytes / change.old * change.new


def _widths(operations: list[Operation], storages: dict[int, Storage], change: _Change, at: int, lstm: Lstm) -> None:
    """Change the layer itself and its backward pass: states, recurrent matrices, outputs; and give it a projection."""
    numbers = []
    for _ in lstm.weights:
        number = fresh_storage(StepTable((), tuple(storages.values())))
        size = change.new * change.old * itemsize(lstm.dtype)
        storages[number] = Storage(number, size, "weight", BEFORE, None)
        numbers.append(number)
    for position, operation in enumerate(operations):
        if position == at or (operation.name in FORMS and operation.forward_index == at):
            operations[position] = _projected(operation, change, numbers)


def _projected(operation: Operation, change: _Change, numbers: Sequence[int]) -> Operation:
    """A whole layer with the narrower state. Its cell states stay as wide as they are."""
    backward = FORMS[operation.name].backward
    matrices = _narrow_inputs(operation)
    shapes = list(operation.input_shapes)
    for place in matrices:
        form = shapes[place]
        shapes[place] = (*form[:-1], change.new)
        change.narrow.add(operation.reads[place])
    outputs = list(operation.output_shapes)
    for place in _gradient_places(operation, matrices) if backward else (0, 1):
        if place < len(outputs) and outputs[place] and outputs[place][-1] == change.old:
            outputs[place] = (*outputs[place][:-1], change.new)
            change.narrow.add(operation.writes[place])
    return _with_projections(
        replace(operation, input_shapes=tuple(shapes), output_shapes=tuple(outputs)), change, numbers
    )


def _gradient_places(operation: Operation, matrices: Sequence[int]) -> list[int]:
    """Where the gradients of these inputs are among the outputs of a backward pass, of those that are weights."""
    form = FORMS[operation.name]
    listed = [place for place, name in enumerate(operation.input_names) if name.split("[")[0] in form.weights]
    return [form.gradients + listed.index(place) for place in matrices if place in listed]


def _narrow_inputs(operation: Operation) -> list[int]:
    """Places of the inputs whose last dimension is the state's: recurrent matrices, layers' inputs but the first, the
    hidden states, and what comes back from the layer above."""
    form, names = FORMS[operation.name], operation.input_names
    matrices = [
        place
        for place, name in enumerate(names)
        if (name in form.weights or name.split("[")[0] in form.weights) and len(operation.input_shapes[place]) == 2
    ]
    states = [
        place for place, name in enumerate(names) if name in (form.states[0], "grad_output", "output", "hy_", "grad_hy")
    ]
    return [*matrices[1:], *states]


def _with_projections(operation: Operation, change: _Change, numbers: Sequence[int]) -> Operation:
    """The operation with a matrix (p, h) after each cell's tensors."""
    form = FORMS[operation.name]
    listed = [place for place, name in enumerate(operation.input_names) if name.split("[")[0] in form.weights]
    rows = list(
        zip(operation.input_names, operation.input_shapes, operation.input_dtypes, operation.reads, strict=True)
    )
    per_cell = len(listed) // len(numbers)
    dtype = rows[listed[0]][2]
    made = [(PROJECTION, (change.new, change.old), dtype, number) for number in numbers]
    if PROJECTION in form.weights:
        rows.append(made[0])
    else:
        weights = [rows[place] for place in listed]
        cells = [[*weights[i * per_cell : (i + 1) * per_cell], made[i]] for i in range(len(numbers))]
        name = form.weights[0]
        named = [(f"{name}[{i}]", *row[1:]) for i, row in enumerate(row for cell in cells for row in cell)]
        rows = [*rows[: listed[0]], *named, *rows[listed[-1] + 1 :]]
    names, shapes, dtypes, reads = zip(*rows, strict=True)
    return replace(operation, input_names=names, input_shapes=shapes, input_dtypes=dtypes, reads=reads)


def _spread(operations: list[Operation], change: _Change) -> None:
    """Change everything that what is narrow meets, until nothing changes any more."""
    before = -1
    while before != len(change.narrow):
        before = len(change.narrow)
        for operation in operations:
            change.narrow |= _met(operation, change)
    for position, operation in enumerate(operations):
        if operation.name not in FORMS and change.narrow & {*operation.reads, *operation.writes}:
            operations[position] = _narrowed(operation, change)
        elif operation.name in FORMS:
            operations[position] = _fed(operation, change)


def _met(operation: Operation, change: _Change) -> set[int]:
    """Storages of an operation that become narrow because another one of its is. Lists of tensors (the optimizer's)
    have nothing to do with each other."""
    touched = change.narrow & {*operation.reads, *operation.writes}
    if not touched or any("[" in name for name in operation.input_names):
        return set()
    if operation.name in FORMS:
        return _fed_storages(operation, change)
    tensors = [*zip(operation.reads, operation.input_shapes, strict=True), *_outputs(operation)]
    return {storage for storage, form in tensors if change.old in form}


def _outputs(operation: Operation) -> Iterable[tuple[int, Shape]]:
    """(storage, shape) of outputs; of one that writes its input in place, that input's."""
    return zip(operation.writes, operation.output_shapes, strict=False)


def _narrowed(operation: Operation, change: _Change) -> Operation:
    """An operation with the new width in its narrow tensors."""
    owners = dict(enumerate(operation.writes))
    last = operation.writes[-1] if operation.writes else BEFORE
    inputs = tuple(
        change.of(form, operation) if storage in change.narrow else form
        for storage, form in zip(operation.reads, operation.input_shapes, strict=True)
    )
    outputs = tuple(
        change.of(form, operation) if owners.get(place, last) in change.narrow else form
        for place, form in enumerate(operation.output_shapes)
    )
    rule = rule_of(operation.name)
    is_view = rule is not None and rule.traffic is nothing and len(inputs) == len(outputs) == 1
    if (
        is_view
        and prod(operation.input_shapes[0]) == prod(operation.output_shapes[0])
        and prod(inputs[0]) != prod(outputs[0])
    ):
        raise ValueError(
            f"{operation.name} at index {operation.index} mixes the width {change.old} with another dimension"
        )
    return replace(operation, input_shapes=inputs, output_shapes=outputs)


def _fed_storages(operation: Operation, change: _Change) -> set[int]:
    """Of a layer whose input is narrow: its first matrix, its input's gradient and the matrix's own."""
    places, outputs = _input_places(operation)
    if operation.reads[places[0]] not in change.narrow:
        return set()
    return {operation.reads[place] for place in places} | {operation.writes[place] for place in outputs}


def _fed(operation: Operation, change: _Change) -> Operation:
    """A layer whose input is narrow, with the new width of its input."""
    places, outputs = _input_places(operation)
    if operation.reads[places[0]] not in change.narrow or operation.input_shapes[places[0]][-1] != change.old:
        return operation
    inputs, given = list(operation.input_shapes), list(operation.output_shapes)
    for place in places:
        inputs[place] = (*inputs[place][:-1], change.new)
    for place in outputs:
        given[place] = (*given[place][:-1], change.new)
    return replace(operation, input_shapes=tuple(inputs), output_shapes=tuple(given))


def _input_places(operation: Operation) -> tuple[list[int], list[int]]:
    """(places among its inputs, among its outputs) that have the width of a layer's input."""
    form, names = FORMS[operation.name], operation.input_names
    first = next(place for place, name in enumerate(names) if name.split("[")[0] in form.weights)
    outputs = [
        place for place in ((0, form.gradients) if form.backward else ()) if place < len(operation.output_shapes)
    ]
    return [names.index("input"), first], outputs
