"""The sizes and storages of an LSTM that a table holds as one operation: a layer, several layers, or one step's cell.

It reads the forms that PyTorch records: oneDNN's layers, cuDNN's and MIOpen's stacks, aten.lstm kept whole and
aten.lstm_cell, forward and backward. GRUs and plain RNNs, packed sequences and numbers of steps that are symbols are
refused: what is made of them step by step needs the number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.operators.cost import Size
from analysis.operators.operands import attribute, shape, shapes_in
from analysis.optables.builder import Tensor
from results.records import Operation

LSTM_MODE = 2
"""The argument `mode` of cuDNN's and oneDNN's layers that means an LSTM."""


PROJECTION = "w_hr"
"""The matrix of a projection, where an operation of one cell is given one (`analysis/optables/lstm_projection.py`)."""


@dataclass(frozen=True)
class LayerForm:
    """How an operation names its tensors. weights: a list's name, or those of one cell. states: (hidden, cell).
    gradients: of a backward pass, the place of the first weight's gradient among its outputs; the others follow."""

    weights: tuple[str, ...]
    states: tuple[str, str]
    gradients: int = 0
    length_first: bool = False

    @property
    def backward(self) -> bool:
        """Whether it is a backward pass."""
        return self.gradients > 0


_ONEDNN_BACKWARD = LayerForm(("weight1", "weight2", "weight3", "weight4", PROJECTION), ("hx_", "cx_tmp"), 1, True)

FORMS: Mapping[str, LayerForm] = {
    "aten.mkldnn_rnn_layer": LayerForm(
        ("weight0", "weight1", "weight2", "weight3", PROJECTION), ("hx_", "cx_"), length_first=True
    ),
    "aten.mkldnn_rnn_layer_backward": _ONEDNN_BACKWARD,
    "aten._cudnn_rnn": LayerForm(("weight",), ("hx", "cx")),
    "aten._cudnn_rnn_backward": LayerForm(("weight",), ("hx", "cx"), gradients=3),
    "aten.miopen_rnn": LayerForm(("weight",), ("hx", "cx")),
    "aten.miopen_rnn_backward": LayerForm(("weight",), ("hx", "cx"), gradients=3),
    "aten.lstm": LayerForm(("params",), ("hx[0]", "hx[1]")),
    "aten.lstm_cell": LayerForm(("w_ih", "w_hh", "b_ih", "b_hh", PROJECTION), ("hx[0]", "hx[1]")),
}
"""Operation → its form."""


@dataclass(frozen=True)
class Lstm:
    """One operation's LSTM. state: width of what a step hands on (the projection's, or `hidden`). weights: of each
    cell, layer by layer and direction by direction: input, recurrent, two biases, projection, as far as it has them."""

    steps: int
    batch: Size
    inputs: Size
    hidden: Size
    state: Size
    layers: int
    directions: int
    bias: bool
    weights: tuple[tuple[Tensor, ...], ...]
    input: Tensor
    states: tuple[Tensor | None, Tensor | None]
    dtype: str

    @property
    def projected(self) -> bool:
        """Whether the hidden state is projected before it is handed on."""
        return bool(self.state != self.hidden)


def lstm_of(operation: Operation) -> Lstm | None:
    """The LSTM that an operation is; None if it is none. Raises ValueError for one that cannot be told step by step."""
    form = FORMS.get(operation.name)
    if form is None or attribute(operation, "mode", LSTM_MODE) != LSTM_MODE:
        return None
    where = f"{operation.name} at index {operation.index}"
    if attribute(operation, "batch_sizes", []):
        raise ValueError(f"{where}: sequences that are packed have no steps of one size")
    steps, batch, inputs = _sizes(operation, form, where)
    tensors = _weights(operation, form)
    state, hidden = tensors[1].shape[1], tensors[0].shape[0] / 4
    if isinstance(tensors[0].shape[0], int):
        hidden = tensors[0].shape[0] // 4
    own = _named(operation, "input")
    assert own is not None  # its sizes were read
    states = (_named(operation, form.states[0]), _named(operation, form.states[1]))
    bias = bool(attribute(operation, "has_biases", any(len(each.shape) == 1 for each in tensors)))
    per_cell = 2 + 2 * int(bias) + int(state != hidden)
    cells = tuple(tensors[at : at + per_cell] for at in range(0, len(tensors), per_cell))
    one = operation.name.startswith("aten.mkldnn") or operation.name == "aten.lstm_cell"
    directions = 1 if one or not attribute(operation, "bidirectional", False) else 2
    return Lstm(
        steps, batch, inputs, hidden, state, len(cells) // directions, directions, bias, cells,
        own, states, own.dtype,
    )  # fmt: skip


def _sizes(operation: Operation, form: LayerForm, where: str) -> tuple[int, Size, Size]:
    sizes = shape(operation, "input")
    if len(sizes) == 2:
        return 1, sizes[0], sizes[1]
    first = form.length_first or not attribute(operation, "batch_first", False)
    steps, batch = (sizes[0], sizes[1]) if first else (sizes[1], sizes[0])
    if not isinstance(steps, int):
        raise ValueError(f"{where}: expected a number of steps, got {steps}: put a number in its place first")
    return steps, batch, sizes[2]


def _weights(operation: Operation, form: LayerForm) -> tuple[Tensor, ...]:
    """All weight tensors in order; those without elements, which stand for no bias, are left out."""
    names = form.weights
    if len(names) == 1:
        names = tuple(f"{names[0]}[{place}]" for place in range(len(shapes_in(operation, names[0]))))
    found = (_named(operation, name) for name in names)
    return tuple(tensor for tensor in found if tensor is not None and 0 not in tensor.shape)


def _named(operation: Operation, name: str) -> Tensor | None:
    if name not in operation.input_names:
        return None
    at = operation.input_names.index(name)
    return Tensor(operation.reads[at], tuple(operation.input_shapes[at]), operation.input_dtypes[at], None)


def input_named(operation: Operation, name: str) -> Tensor | None:
    """An input of an operation by its name; None if it was not passed."""
    return _named(operation, name)
