"""What a node of an ONNX graph is here, and what its functions share: attributes, known values, sizes of windows.

A *known* value is a numpy array: an initialiser that is not trained, a constant, or what was calculated from shapes.
Everything else is a tensor. So a graph that calculates its sizes (Shape, Gather, Concat, Reshape) runs on tensors that
have no values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from results import beyond, limit

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
    16: "bfloat16",
}  # fmt: skip
"""ONNX's number of a type (TensorProto.DataType) → torch's name of it."""


@dataclass(frozen=True)
class OnnxNode:
    """One node. op: its operator; of another domain than ONNX's own, "domain.operator". opset: the version of ONNX's
    operators that the file asks for. An input that is left out has the name ""."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)

    def refuse(self, why: str) -> ValueError:
        """What to raise for a form of an operator that is not there."""
        return ValueError(f"ONNX operator {self.op} (node {self.name!r}): {why}")

    def bounded(self, elements: int) -> None:
        """Raises ValueError for an array of so many elements, before anything takes memory for it."""
        if elements > limit("array_elements"):
            raise self.refuse(beyond(f"calculates an array of {elements:.3g} elements", "array_elements"))

    def only(self, name: str, *allowed: Any) -> None:
        """Raises ValueError for an attribute with another value than these; the first is what its absence means."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise self.refuse(f"{name} {value!r} is not known; expected {' or '.join(map(repr, allowed))}")


Known = np.ndarray[Any, Any]


def known_value(node: OnnxNode, inputs: list[Any], place: int, default: Any = None) -> Any:
    """An input whose value is known, as an array; `default` where it is left out. Raises ValueError if it depends on
    data."""
    value = inputs[place] if place < len(inputs) else None
    if value is None:
        return default
    if isinstance(value, torch.Tensor):
        raise node.refuse(f"input {place + 1} depends on data; expected a value that follows from sizes")
    return value


def integers(node: OnnxNode, inputs: list[Any], place: int, attribute: str) -> list[int] | None:
    """Whole numbers that older versions of an operator have as attribute and newer ones as input; None if neither."""
    value = known_value(node, inputs, place, node.get(attribute))
    return None if value is None else [int(each) for each in np.asarray(value).reshape(-1)]


def single(value: Any) -> Any:
    """A known value of one element as a Python number."""
    return np.asarray(value).reshape(-1)[0].item()


def padding(node: OnnxNode, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Padding (before, after) each spatial dimension, written out or asked for by `auto_pad`."""
    rank = len(kernel)
    auto = node.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = list(node.get("pads", [0] * (2 * rank))) if auto == "NOTSET" else [0] * (2 * rank)
        return pads[:rank], pads[rank:]
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    whole = []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        out = -(-size // stride)
        whole.append(max((out - 1) * stride + (taps - 1) * dilation + 1 - size, 0))
    small, large = [each // 2 for each in whole], [each - each // 2 for each in whole]
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def around(before: list[int], after: list[int]) -> list[int]:
    """Padding as `torch.nn.functional.pad` takes it: the last dimension first."""
    return [each for pair in zip(reversed(before), reversed(after), strict=True) for each in pair]
