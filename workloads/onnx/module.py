"""An ONNX graph as a module that can be trained: one module a node, its initialisers as parameters and buffers.

Which initialisers are parameters: floating-point ones of more than one element, all of them finite and none huge, but
those that the operator keeps itself (running means). The rest are values: numbers, masks, sizes. A file does not say
what was trained; a table of sines or an anchor box is taken for a parameter here. Modules have the paths that the
exporter wrote into the nodes' names ("/layer1/layer1.0/conv1/Conv" is layer1.0.conv1.Conv).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from results import beyond, limit
from workloads.onnx.constants import KNOWN, calculate
from workloads.onnx.node import Known, OnnxNode, single
from workloads.onnx.operators import OPERATORS, Operator
from workloads.onnx.recurrent import LAYERS, Recurrent

HUGE = 1e9
"""Values of this size or more are a mask's, not a weight's."""


class OnnxNet(torch.nn.Module):
    """See the module. forward takes the graph's inputs in order, and gives its one output or a tuple of several."""

    def __init__(
        self,
        nodes: Sequence[OnnxNode],
        initialisers: Mapping[str, Known],
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        super().__init__()
        trained = {name for name, array in initialisers.items() if is_weight(array)}
        values: dict[str, Any] = dict(initialisers)
        made: dict[str, torch.nn.Parameter] = {}
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._steps: list[GraphStep] = []
        calculated_bytes = 0
        for node in nodes:
            if (folded := _folded(node, values, trained)) is not None:
                values.update(folded)
                calculated_bytes += sum(array.nbytes for array in folded.values())
                if calculated_bytes > limit("array_values"):
                    raise node.refuse(beyond("the values that sizes follow from", "array_values"))
                continue
            step = GraphStep(node, values, trained, made)
            self._steps.append(step)
            _put(self, node.name, step)
        self._values = {name: values[name] for name in self._outputs if name in values}
        self._last = {name: i for i, step in enumerate(self._steps) for name in step.node.inputs}

    def forward(self, *inputs: Any) -> Any:
        values: dict[str, Any] = {**self._values, **dict(zip(self._inputs, inputs, strict=True))}
        kept = set(self._outputs)
        for place, step in enumerate(self._steps):
            made = step(*(values.get(name) for name in step.node.inputs))
            values.update(zip(step.node.outputs, made if isinstance(made, tuple) else (made,), strict=False))
            for name in step.node.inputs:  # a tensor goes when the last that reads it has run
                if self._last[name] == place and name not in kept:
                    values.pop(name, None)
        results = tuple(_tensor(values[name], None) for name in self._outputs)
        return results[0] if len(results) == 1 else results


class GraphStep(torch.nn.Module):
    """One node. Tensors that it holds are called by the operator's names for its inputs, as in torch's layers."""

    def __init__(
        self, node: OnnxNode, values: Mapping[str, Any], trained: set[str], made: dict[str, torch.nn.Parameter]
    ) -> None:
        super().__init__()
        self.node = node
        self._held: dict[int, str] = {}
        self._fixed: dict[int, Any] = {}
        if node.op in LAYERS:
            weights = [values.get(name) for name in node.inputs[1:4]]
            self.recurrent = Recurrent(node, weights + [None] * (3 - len(weights)))
        else:
            self._operator = _operator(node)
            self._take(values, trained, made)
        first = 4 if node.op in LAYERS else 0
        for place, name in enumerate(node.inputs[first:], first):
            if name in values and place not in self._held:
                self._fixed[place] = values[name]

    def _take(self, values: Mapping[str, Any], trained: set[str], made: dict[str, torch.nn.Parameter]) -> None:
        """Initialisers become parameters, or buffers where the operator wants a tensor that is not trained."""
        for place, name in enumerate(self.node.inputs):
            if name not in values or place in self._operator.sizes or np.ndim(values[name]) == 0:
                continue
            called = self._operator.names[place : place + 1] or ("",)
            own = called[0] or f"operand_{place}"
            if name in trained and place not in self._operator.kept:
                made.setdefault(name, torch.nn.Parameter(torch.from_numpy(np.array(values[name]))))
                self.register_parameter(own, made[name])
            elif _stays(self.node, place, values[name]):
                continue
            else:
                self.register_buffer(own, torch.from_numpy(np.array(values[name])))
            self._held[place] = own

    def forward(self, *given: Any) -> Any:
        inputs = list(given)
        for place, value in self._fixed.items():
            inputs[place] = value
        for place, name in self._held.items():
            inputs[place] = getattr(self, name)
        if self.node.op in LAYERS:
            return self.recurrent(inputs)
        if self.node.op in KNOWN and all(each is None or isinstance(each, np.ndarray) for each in inputs):
            return calculate(self.node, inputs)
        like = next((each for each in inputs if isinstance(each, torch.Tensor)), None)
        inputs = [each if self._as_it_is(place, each) else _value(each, like) for place, each in enumerate(inputs)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        return self._operator.function(self.node, inputs, self.training)

    def _as_it_is(self, place: int, value: Any) -> bool:
        return place in self._operator.sizes or (_is_index(self.node, place) and not isinstance(value, torch.Tensor))


def is_weight(array: Known) -> bool:
    """Whether an initialiser is taken for something that is trained."""
    if not np.issubdtype(array.dtype, np.floating) or array.size < 2:
        return False
    return bool(np.isfinite(array).all() and np.abs(array).max() < HUGE)


def _stays(node: OnnxNode, place: int, array: Known) -> bool:
    """Whether an initialiser may be needed to calculate sizes, so that its value stays known."""
    small = array.size < 2 or not np.issubdtype(array.dtype, np.floating)
    return _is_index(node, place) or (small and node.op in KNOWN)


def _is_index(node: OnnxNode, place: int) -> bool:
    """What a Gather takes stays known where it is: one index is a slice."""
    return node.op == "Gather" and place == 1


def _operator(node: OnnxNode) -> Operator:
    """What the node does with tensors; one that only calculates sizes refuses them when it is run."""
    return OPERATORS.get(node.op, Operator(_refuse))


def _refuse(node: OnnxNode, _inputs: list[Any], _training: bool) -> Any:
    raise node.refuse("its inputs depend on data; expected values that follow from sizes")


def _folded(node: OnnxNode, values: Mapping[str, Any], trained: set[str]) -> dict[str, Any] | None:
    """What a node gives, if that follows from constants alone; None if it has to run."""
    if node.op == "Constant":
        return {node.outputs[0]: _constant(node)}
    names = [name for name in node.inputs if name]
    if node.op not in KNOWN or not names or any(name not in values or name in trained for name in names):
        return None
    return dict(zip(node.outputs, calculate(node, [values.get(name) for name in node.inputs]), strict=False))


def _constant(node: OnnxNode) -> Known:
    for name, dtype in (
        ("value", None),
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
    ):
        if node.get(name) is not None:
            return np.asarray(node.get(name), dtype)
    if node.get("value_ints") is None:
        raise node.refuse("expected a number, or a tensor of numbers")
    return np.asarray(node.get("value_ints"), "int64")


def _value(value: Any, like: torch.Tensor | None) -> Any:
    """A known value among tensors: a number where it has no dimension, else a tensor on their device."""
    return single(value) if isinstance(value, np.ndarray) and value.ndim == 0 else _tensor(value, like)


def _tensor(value: Any, like: torch.Tensor | None) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    kind = getattr(torch, str(value.dtype))
    return torch.tensor(value.tolist(), dtype=kind, device=None if like is None else like.device)


def _put(net: torch.nn.Module, name: str, step: GraphStep) -> None:
    """Register a step under the path in its node's name."""
    parts, above = [], ""
    for part in name.split("/"):
        inner = part.removeprefix(f"{above}.") if above else part
        above = part or above
        parts += [each for each in [inner.replace(".", "_").replace(":", "_")] if each]
    where = net
    for part in parts[:-1]:
        where = _child(where, part)
    last, number = parts[-1] if parts else "node", 1
    free = last
    while hasattr(where, free):
        free, number = f"{last}_{number}", number + 1
    where.add_module(free, step)


def _child(where: torch.nn.Module, name: str) -> torch.nn.Module:
    """The module of this name inside another; made if there is none."""
    while hasattr(where, name) and (name not in where._modules or isinstance(where._modules[name], GraphStep)):
        name += "_"
    if name not in where._modules:
        where.add_module(name, torch.nn.Module())
    return where._modules[name]  # type: ignore[return-value]  # it was just put there
