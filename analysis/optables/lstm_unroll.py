"""An LSTM that is one operation, split into products and pointwise operations, step by step; its backward too.

Forward, each step of each cell: two products (with a bias each, where it has them), their sum, three sigmoids and a
tanh, f·c + i·g, o·tanh(c'), and the projection where it has one. Backward, from the last step: the derivatives of these
(as `analysis/operators/recurrent.py` counts them), the products back to the state and to the input; the gradients of
the weights are one product over all steps, as libraries do it. So model FLOP are what they were, exactly; other FLOP
too, where nothing is projected; bytes rise, because every step reads the weights and writes what it makes.

Not claimed: that a library runs it so. The sum of two directions' gradients is not counted, as in the
layer's own count. What the layer gave and no piece makes in its place (the last state, a second bias's gradient) is
copied there where something needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from analysis.operators.cost import Size
from analysis.operators.operands import attribute
from analysis.optables.builder import LASTING, StepTable, Table, Tensor
from analysis.optables.edits import BEFORE, fresh_storage, replaced
from analysis.optables.lstm_layers import FORMS, Lstm, input_named, lstm_of
from results.records import Operation, Storage

__all__ = ["Saved", "split_backward", "split_forward", "split_lstm"]


@dataclass(frozen=True)
class Saved:
    """What the forward pass of one step keeps: its input, the state and cell before it, its gates (i, f and o
    together; g), its own cell, and its hidden state."""

    x: Tensor
    before: Tensor
    cell: Tensor
    gates: Tensor
    g: Tensor
    made: Tensor
    hidden: Tensor


Kept = Mapping[tuple[int, int], tuple[Saved, ...]]
"""(layer, direction) → its steps in the order in which they ran."""


def split_lstm(table: StepTable) -> StepTable:
    """The table with every LSTM in pieces. Raises ValueError for one whose steps cannot be told, or a backward pass
    whose forward pass is not in the table."""
    instead: dict[int, tuple[Operation, ...]] = {}
    storages: list[Storage] = []
    kept: dict[int, tuple[Lstm, Kept]] = {}
    number = fresh_storage(table)
    for operation in table.operations:
        lstm = lstm_of(operation)
        if lstm is None:
            continue
        pieces = Table(lstm.dtype, number)
        if FORMS[operation.name].backward:
            forward, saved = _forward_of(operation, kept)
            split_backward(pieces, operation, forward, saved)
        else:
            kept[operation.index] = lstm, split_forward(pieces, operation, lstm)
        _copy_rest(pieces, operation, _outside(table))
        instead[operation.index] = tuple(_placed(pieces.operations, operation))
        storages += [each if each.role in LASTING else replace(each, died_index=BEFORE) for each in pieces.storages]
        number += len(pieces.storages)
    return replaced(table, instead, storages)


def _forward_of(operation: Operation, kept: Mapping[int, tuple[Lstm, Kept]]) -> tuple[Lstm, Kept]:
    if operation.forward_index is None or operation.forward_index not in kept:
        raise ValueError(f"{operation.name} at index {operation.index}: its forward pass is not an LSTM of the table")
    return kept[operation.forward_index]


def _outside(table: StepTable) -> set[int]:
    """Storages that something reads which is no LSTM, or that outlive the step."""
    others = (operation for operation in table.operations if operation.name not in FORMS)
    read = {storage for operation in others for storage in operation.reads}
    return read | {storage.id for storage in table.storages if storage.died_index is None}


def _copy_rest(table: Table, operation: Operation, wanted: set[int]) -> None:
    """Copies to the storages that the whole operation wrote, no piece does, and something needs."""
    made = {storage for piece in table.operations for storage in piece.writes}
    last = table.operations[-1]
    for storage, form, dtype in zip(operation.writes, operation.output_shapes, operation.output_dtypes, strict=False):
        if storage in wanted and storage not in made:
            there, to = Tensor(last.writes[0], form, dtype, None), Tensor(storage, form, dtype, None)
            table.call("aten.clone", {"self": there}, [form], dtype=dtype, into=to)


def _placed(pieces: tuple[Operation, ...], whole: Operation) -> Iterator[Operation]:
    """The pieces where the whole one stood: in its phase and module, with its links."""
    for piece in pieces:
        yield replace(
            piece,
            phase=whole.phase,
            module=whole.module,
            sequence_nr=whole.sequence_nr,
            forward_index=whole.forward_index,
        )


def split_forward(table: Table, operation: Operation, lstm: Lstm) -> Kept:
    """Write the pieces of a forward pass. What its steps keep is what the backward pass reads."""
    kept: dict[tuple[int, int], tuple[Saved, ...]] = {}
    below, width = lstm.input, lstm.inputs
    for layer in range(lstm.layers):
        whole = lstm.directions * lstm.state
        last = layer == lstm.layers - 1
        out = _output(table, operation, lstm, last, (lstm.steps, lstm.batch, whole))
        for direction in range(lstm.directions):
            weights = lstm.weights[layer * lstm.directions + direction]
            kept[layer, direction] = tuple(_steps(table, lstm, weights, replace(below, shape=(lstm.batch, width)), out))
        below, width = out, whole
    return kept


def _output(table: Table, operation: Operation, lstm: Lstm, last: bool, shape: tuple[Size, ...]) -> Tensor:
    """What a layer writes its states to: of the last one, what the operation gave."""
    if last and operation.writes:
        return Tensor(operation.writes[0], shape, lstm.dtype, None)
    return table.scratch(shape)


def _steps(table: Table, lstm: Lstm, weights: tuple[Tensor, ...], x: Tensor, out: Tensor) -> Iterator[Saved]:
    """The steps of one cell."""
    state = lstm.states[0] or table.input((lstm.batch, lstm.state), lstm.dtype)
    cell = lstm.states[1] or table.input((lstm.batch, lstm.hidden), lstm.dtype)
    state, cell = replace(state, shape=(lstm.batch, lstm.state)), replace(cell, shape=(lstm.batch, lstm.hidden))
    for _ in range(lstm.steps):
        saved, new_cell, new_state = _step(table, lstm, weights, x, state, cell, out)
        yield saved
        state, cell = new_state, new_cell


def _step(
    table: Table, lstm: Lstm, weights: tuple[Tensor, ...], x: Tensor, state: Tensor, cell: Tensor, out: Tensor
) -> tuple[Saved, Tensor, Tensor]:
    small = (lstm.batch, lstm.hidden)
    both = (_gates(table, lstm, weights, x, 0), _gates(table, lstm, weights, state, 1))
    summed = table.add(*both)
    gates = table.sigmoid(replace(summed, shape=(lstm.batch, 3 * lstm.hidden)))
    g = table.tanh(replace(summed, shape=small))
    one = replace(gates, shape=small)  # any of the three: they have one storage
    new_cell = table.add(table.mul(one, cell), table.mul(one, g))
    squashed = table.tanh(new_cell)
    if not lstm.projected:
        hidden = table.call("aten.mul", {"self": one, "other": squashed}, [small], into=out)[0]
        return Saved(x, state, cell, gates, g, new_cell, hidden), new_cell, hidden
    hidden = table.mul(one, squashed)
    narrow = replace(weights[-1], shape=(lstm.hidden, lstm.state))
    handed = table.call("aten.mm", {"self": hidden, "mat2": narrow}, [(lstm.batch, lstm.state)], into=out)[0]
    return Saved(x, state, cell, gates, g, new_cell, hidden), new_cell, handed


def _gates(table: Table, lstm: Lstm, weights: tuple[Tensor, ...], x: Tensor, which: int) -> Tensor:
    """x times the input's or the state's matrix."""
    turned = replace(weights[which], shape=(x.shape[1], 4 * lstm.hidden))
    return table.addmm(weights[2 + which], x, turned) if lstm.bias else table.mm(x, turned)


def split_backward(table: Table, operation: Operation, lstm: Lstm, kept: Kept) -> None:
    """Write the pieces of a backward pass, layers and steps from the last to the first."""
    mask = attribute(operation, "output_mask", (True, True, True, True))
    arriving = input_named(operation, "grad_output")
    grad = arriving or table.input((lstm.steps, lstm.batch, lstm.directions * lstm.state), lstm.dtype)
    for layer in reversed(range(lstm.layers)):
        width = lstm.inputs if layer == 0 else lstm.directions * lstm.state
        wants_input = layer > 0 or bool(mask[0])
        below = table.scratch((lstm.steps, lstm.batch, width))
        if layer == 0 and wants_input and operation.writes:
            below = Tensor(operation.writes[0], below.shape, lstm.dtype, None)
        for direction in range(lstm.directions):
            weights = lstm.weights[layer * lstm.directions + direction]
            steps = kept[layer, direction]
            gates = _back(table, lstm, weights, steps, grad, below if wants_input else None)
            if len(mask) < 4 or mask[3]:
                _weight_gradients(table, lstm, steps, gates, _targets(operation, lstm, weights))
        grad = below


def _back(
    table: Table, lstm: Lstm, weights: tuple[Tensor, ...], steps: tuple[Saved, ...], grad: Tensor, below: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The steps of one cell from the last. Gives the gradients of all gates, and of what is projected."""
    wide, small = (lstm.batch, 4 * lstm.hidden), (lstm.batch, lstm.hidden)
    gates = table.scratch((lstm.steps, *wide))
    handed = table.scratch((lstm.steps, lstm.batch, lstm.state))
    next_state = table.input((lstm.batch, lstm.state), lstm.dtype)
    next_cell = table.input(small, lstm.dtype)
    for saved in reversed(steps):
        whole = replace(grad, shape=(lstm.batch, lstm.state))
        inner = table.call("aten.add", {"self": whole, "other": next_state}, [whole.shape], into=handed)[0]
        if lstm.projected:
            inner = table.mm(inner, replace(weights[-1], shape=(lstm.state, lstm.hidden)))
        next_cell = _gate_gradients(table, lstm, saved, inner, next_cell, gates)
        of_gates = replace(gates, shape=wide)
        next_state = table.mm(of_gates, replace(weights[1], shape=(4 * lstm.hidden, lstm.state)))
        if below is not None:
            turned = replace(weights[0], shape=(4 * lstm.hidden, saved.x.shape[1]))
            table.call("aten.mm", {"self": of_gates, "mat2": turned}, [saved.x.shape], into=below)
        if lstm.bias:
            table.call("aten.sum", {"self": of_gates}, [(4 * lstm.hidden,)], role="gradient")
    return gates, handed


def _gate_gradients(table: Table, lstm: Lstm, saved: Saved, inner: Tensor, next_cell: Tensor, into: Tensor) -> Tensor:
    """The pointwise work of one step: gradients of the gates before their functions, and of the cell before."""
    small, three = (lstm.batch, lstm.hidden), (lstm.batch, 3 * lstm.hidden)
    one = replace(saved.gates, shape=small)
    squashed = table.tanh(saved.made)  # calculated again, as the count has it
    grads = table.scratch(three)
    table.call("aten.mul", {"self": inner, "other": squashed}, [small], into=grads)  # of o
    through = table.call("aten.tanh_backward", {"grad_output": table.mul(inner, one), "output": squashed}, [small])[0]
    cell = table.add(through, next_cell)
    table.call("aten.mul", {"self": cell, "other": saved.g}, [small], into=grads)  # of i
    table.call("aten.mul", {"self": cell, "other": saved.cell}, [small], into=grads)  # of f
    of_g = table.mul(cell, one)
    before = table.mul(cell, one)
    together = {"grad_output": replace(grads, shape=three), "output": saved.gates}
    table.call("aten.sigmoid_backward", together, [three], into=into)
    table.call("aten.tanh_backward", {"grad_output": of_g, "output": saved.g}, [small], into=into)
    return before


def _weight_gradients(
    table: Table,
    lstm: Lstm,
    steps: tuple[Saved, ...],
    grads: tuple[Tensor, Tensor],
    targets: tuple[Tensor | None, ...],
) -> None:
    """Products over all steps: gatesᵀ · inputs, gatesᵀ · states, and of a projection."""
    tokens, wide = lstm.steps * lstm.batch, 4 * lstm.hidden
    turned = replace(grads[0], shape=(wide, tokens))
    for place, with_ in enumerate((steps[-1].x, steps[-1].before)):
        width = with_.shape[1]
        inputs = {"self": turned, "mat2": replace(with_, shape=(tokens, width))}
        table.call("aten.mm", inputs, [(wide, width)], into=targets[place], role="gradient")
    if lstm.projected:
        inputs = {
            "self": replace(grads[1], shape=(lstm.state, tokens)),
            "mat2": replace(steps[-1].hidden, shape=(tokens, lstm.hidden)),
        }
        table.call("aten.mm", inputs, [(lstm.state, lstm.hidden)], role="gradient")


def _targets(operation: Operation, lstm: Lstm, weights: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """Where the operation put the gradients of a cell's two matrices."""
    first = FORMS[operation.name].gradients + lstm.weights.index(weights) * len(weights)
    written = operation.writes[first : first + 2]
    return (*(Tensor(storage, (), lstm.dtype, None) for storage in written), None, None)[:2]
