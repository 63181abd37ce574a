"""The LSTM with one bias a layer, as TensorFlow has it, as a layer over a whole sequence and as one step of a loop.

PyTorch's own has two, of which one is enough: they are only ever added. The layer keeps PyTorch's operator, and gives
it zeros for the second. The cell is one product of input and state together, then the gates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

State = tuple[torch.Tensor, torch.Tensor]
"""(output, memory) of a cell, each batch × hidden."""


class LSTM(nn.LSTM):
    """nn.LSTM whose second bias of each layer and direction is a buffer of zeros: not trained and no parameter."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        for name in [name for name in self._parameters if name.startswith("bias_hh")]:
            zeros = torch.zeros_like(self._parameters.pop(name), requires_grad=False)  # type: ignore[arg-type]
            self.register_buffer(name, zeros, persistent=False)
        self._init_flat_weights()  # what the operator is given


class Cell(nn.Module):
    """One step of an LSTM: weight of 4·hidden × (inputs + hidden), one bias; 1 is added to the forget gate.

    noise: deviation of the normal noise that is added to the weight at each step in training; 0: none is drawn.
    """

    def __init__(self, inputs: int, hidden: int, noise: float = 0.0) -> None:
        super().__init__()
        self.hidden, self.noise = hidden, noise
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)

    def forward(self, inputs: torch.Tensor, state: State) -> State:
        weight = self.gates.weight
        if self.noise and self.training:
            weight = weight + self.noise * torch.randn_like(weight)
        gates = nn.functional.linear(torch.cat([inputs, state[0]], dim=1), weight, self.gates.bias)
        entered, new, kept, shown = gates.chunk(4, dim=1)
        memory = state[1] * (kept + 1.0).sigmoid() + entered.sigmoid() * new.tanh()
        return memory.tanh() * shown.sigmoid(), memory

    def zeros(self, like: torch.Tensor) -> State:
        """The state before the first step. like: a tensor whose first dimension is the batch."""
        empty = like.new_zeros(like.shape[0], self.hidden)
        return empty, empty
