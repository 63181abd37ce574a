"""ONNX's LSTM, GRU and RNN as PyTorch's layers of the same arithmetic, with their weights put into torch's order.

One ONNX node is one layer in one or two directions. Lengths of sequences, peepholes, clipping, other activations than
the usual and a GRU that resets before its product are refused: torch's layers do not have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from workloads.onnx.node import OnnxNode

LAYERS: dict[str, tuple[Callable[..., torch.nn.RNNBase], tuple[int, ...], list[str]]] = {
    "LSTM": (torch.nn.LSTM, (0, 2, 3, 1), ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": (torch.nn.GRU, (1, 0, 2), ["Sigmoid", "Tanh"]),
    "RNN": (torch.nn.RNN, (0,), ["Tanh"]),
}
"""Operator → torch's layer, which of ONNX's gates stands at each place of torch's (ONNX: i o f c, z r h; torch:
i f g o, r z n), and the activations of one direction."""

_TENSORS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


class Recurrent(torch.nn.Module):
    """One node. weights: W (directions, gates·H, inputs), R (directions, gates·H, H) and B (directions, 2·gates·H) or
    None."""

    def __init__(self, node: OnnxNode, weights: list[np.ndarray[Any, Any] | None]) -> None:
        super().__init__()
        _check(node)
        kind, _, _ = LAYERS[node.op]
        w, r, b = weights
        if w is None or r is None:
            raise node.refuse("weights that the graph calculates are not known")
        self._batch_first = bool(node.get("layout", 0))
        self._states = 2 if node.op == "LSTM" else 1
        self.layer = kind(w.shape[2], r.shape[2], bias=b is not None, bidirectional=w.shape[0] == 2)
        with torch.no_grad():
            for direction in range(w.shape[0]):
                for name, matrix in zip(_TENSORS, _reordered(node, direction, w, r, b), strict=False):
                    getattr(self.layer, name + "_reverse" * direction).copy_(torch.from_numpy(matrix.copy()))
        self.layer = self.layer.to(torch.from_numpy(w[:0].copy()).dtype)

    def forward(self, inputs: list[Any]) -> tuple[Any, ...]:
        """X, and the states where they are given and are not known zeros. Gives Y, Y_h and, of an LSTM, Y_c."""
        x = inputs[0].transpose(0, 1) if self._batch_first else inputs[0]
        states = [self._state(each, x) for each in inputs[5 : 5 + self._states] if each is not None]
        given = None if any(s is None for s in states) or len(states) < self._states else states
        out, last = self.layer(x, given if given is None else (given[0] if self._states == 1 else tuple(given)))
        ends = [last] if self._states == 1 else list(last)
        length, batch, _ = out.shape
        y = out.reshape(length, batch, ends[0].shape[0], -1).permute(0, 2, 1, 3)
        if self._batch_first:
            return (y.permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in ends))
        return (y, *ends)

    def _state(self, value: Any, x: torch.Tensor) -> torch.Tensor | None:
        """A state to begin with; None for known zeros, which are torch's own."""
        if isinstance(value, np.ndarray):
            if not value.any():
                return None
            value = torch.from_numpy(value.copy()).to(x)
        state: torch.Tensor = value.transpose(0, 1) if self._batch_first else value
        return state


def _reordered(
    node: OnnxNode, direction: int, w: np.ndarray[Any, Any], r: np.ndarray[Any, Any], b: np.ndarray[Any, Any] | None
) -> list[np.ndarray[Any, Any]]:
    """The four tensors of one direction, two without biases, gate by gate in torch's order."""
    order, width = LAYERS[node.op][1], r.shape[2]
    parts = [w[direction], r[direction]]
    if b is not None:
        parts += [b[direction][: len(order) * width], b[direction][len(order) * width :]]
    return [np.concatenate([part[g * width : (g + 1) * width] for g in order]) for part in parts]


def _check(node: OnnxNode) -> None:
    usual = LAYERS[node.op][2]
    directions = 2 if node.get("direction", "forward") == "bidirectional" else 1
    node.only("direction", "forward", "bidirectional")
    node.only("activations", usual * directions)
    node.only("clip", None)
    node.only("input_forget", 0)
    if node.op == "GRU" and not node.get("linear_before_reset", 0):
        raise node.refuse("linear_before_reset 0 is not known; expected 1, as PyTorch's GRU has it")
    if len(node.inputs) > 4 and node.inputs[4]:
        raise node.refuse("lengths of sequences are not known")
    if len(node.inputs) > 7 and node.inputs[7]:
        raise node.refuse("peepholes are not known")
