"""Recurrent modules as counters read them: from the module's own attributes and the sizes of its first input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from results.records.calls import Call, ModuleInfo, tensors

GATES = {"RNN": 1, "RNNCell": 1, "GRU": 3, "GRUCell": 3, "LSTM": 4, "LSTMCell": 4}
"""Class → rows of its weights in units of the hidden size."""


@dataclass(frozen=True)
class Recurrent:
    """What counters know of one call. state: width of what a step hands to the next. widths: the inputs' width of each
    layer, first to last, one direction. rows: what each matrix is multiplied by: steps × batch, as the input's first
    sizes tell them, even of packed sequences."""

    gates: int
    hidden: int
    state: int
    widths: tuple[int, ...]
    bias: bool
    directions: int
    rows: int

    @property
    def weights(self) -> Iterator[tuple[int, int]]:
        """(multiply-adds with the input, with the state) of one step, of each layer of one direction."""
        for width in self.widths:
            yield self.gates * self.hidden * width, self.gates * self.hidden * self.state


def read(module: ModuleInfo, call: Call) -> Recurrent:
    """A module of torch.nn.RNN, GRU, LSTM or one of their cells."""
    settings = module.settings
    hidden, directions = int(settings["hidden_size"]), 2 if settings.get("bidirectional") else 1
    layers = int(settings.get("num_layers", 1))
    state = int(settings.get("proj_size", 0)) or hidden
    sizes = next(tensors(call.arguments)).shape
    widths = (int(settings["input_size"]), *[state * directions] * (layers - 1))
    return Recurrent(
        gates=GATES[module.class_name],
        hidden=hidden,
        state=state,
        widths=widths,
        bias=bool(settings.get("bias", True)),
        directions=directions,
        rows=sizes[0] if module.class_name.endswith("Cell") else prod(sizes[:2]),
    )
