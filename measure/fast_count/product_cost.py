"""What a product of one signature costs: its forward pass by its formula, its backward pass by predicted rows.

A product's backward pass is products again, one for each operand that needs a gradient. For the operators of GRADIENTS
they are predicted, as the rows that a trace of the backward pass would record, and counted by the same table
(`analysis.operators.registry`); no size is multiplied here. Every other product has None for a prediction: its node of
the autograd graph has to be run (`measure/fast_count/autograd_reach.py`). Elementwise work is in no number: model FLOP
alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import may_have_mask
from analysis.operators.operands import output, shape
from measure.dispatch.schemas import Description, Plan, tensors_in
from results.records.operations import Operation

MAY_HOLD_PRODUCTS = (*registry.PRODUCTS, "reduction", "communication", "optimizer")
"""Kinds of operators whose backward pass may hold products."""

Mask = tuple[bool, ...]
"""Which of the inputs of an autograd node, in its order, need a gradient."""

Share = tuple[str, int]
"""(kind, model FLOP)"""


@dataclass(eq=False)
class ProductForm:
    """All calls of one product with one signature.

    forward: kind and model FLOP. made: how to make the output without running the kernel: for each tensor its sizes,
    strides and dtype; None where the kernel has to run.
    """

    operation: Operation
    forward: Share
    made: Any = None
    _backward: dict[Mask, tuple[Share, ...]] = field(default_factory=dict)
    _backward_flop: dict[Mask, int] = field(default_factory=dict)

    @functools.cached_property
    def may_have_mask(self) -> bool:
        """Whether this is attention, or a product that may be one of its own."""
        return may_have_mask(self.operation)

    @functools.cached_property
    def node(self) -> str:
        """The name of the autograd node whose gradients are predicted; "" if they are not."""
        return GRADIENTS[self.operation.name][0] if self.operation.name in GRADIENTS else ""

    def backward(self, mask: Mask) -> tuple[Share, ...]:
        """Kind and model FLOP of the rows of the backward pass, for the gradients that are asked for."""
        found = self._backward.get(mask)
        if found is None:
            rows = GRADIENTS[self.operation.name][1](self.operation, mask)
            found = self._backward[mask] = tuple((row.kind, registry.model_flop(row)) for row in rows)
        return found

    def backward_flop(self, mask: Mask) -> int:
        """Model FLOP of these rows together."""
        found = self._backward_flop.get(mask)
        if found is None:
            found = self._backward_flop[mask] = sum(flop for _, flop in self.backward(mask))
        return found


def form_of(plan: Plan, args: Sequence[Any], kwargs: Any, shapes: Sequence[Any], out: Any) -> ProductForm:
    """The form of a call that just ran. shapes: sizes of its input tensors as they were before."""
    operation = _operation(plan.describe(None, args, kwargs, shapes, out))
    plan.described.clear()
    return ProductForm(operation, (operation.kind, registry.model_flop(operation)))


def shapes_before(args: Sequence[Any], kwargs: Any) -> list[torch.Size]:
    """Sizes of a call's tensors, in the order of its arguments."""
    return [tensor.shape for tensor in tensors_in((*args, *kwargs.values()))]


def _operation(d: Description) -> Operation:
    return Operation(
        0, d.name, d.kind, "forward", "", None, None, d.input_names, d.input_shapes, d.input_dtypes, d.output_shapes,
        d.output_dtypes, d.attributes, (), (),
    )  # fmt: skip


def _row(
    like: Operation, name: str, inputs: dict[str, Any], outputs: Sequence[Any] = (), **attributes: Any
) -> Operation:
    """A row of the backward pass; its dtypes are those of the forward operation."""
    dtype = like.input_dtypes[-1:]
    return Operation(
        0, name, registry.kind_of(name), "backward", "", None, None, tuple(inputs), tuple(inputs.values()),
        dtype * len(inputs), tuple(outputs), dtype * len(outputs), attributes, (), (),
    )  # fmt: skip


def _convolution(forward: Operation, mask: Mask) -> list[Operation]:
    tensors = {"grad_output": output(forward), "input": shape(forward, "input"), "weight": shape(forward, "weight")}
    transposed = forward.attributes["transposed"]
    return [_row(forward, "aten.convolution_backward", tensors, transposed=transposed, output_mask=list(mask))]


def _matrices(left: str, right: str, name: str, first: int) -> Callable[[Operation, Mask], list[Operation]]:
    """Gradients of a product of matrices (…, m, k) and (…, k, n); `first` is the position of `left` in the node."""

    def rows(forward: Operation, mask: Mask) -> list[Operation]:
        *batch, m, k = shape(forward, left)
        n = shape(forward, right)[-1]
        found = []
        if mask[first]:  # dA = dC · Bᵀ
            found.append(_row(forward, name, {"self": (*batch, m, n), "mat2": (*batch, n, k)}, [(*batch, m, k)]))
        if mask[first + 1]:  # dB = Aᵀ · dC
            found.append(_row(forward, name, {"self": (*batch, k, m), "mat2": (*batch, m, n)}, [(*batch, k, n)]))
        return found

    return rows


def _attention(forward: Operation, _mask: Mask) -> list[Operation]:
    """The fused kernel returns all gradients, whichever are asked for."""
    tensors = {name: shape(forward, name) for name in ("query", "key", "value")}
    name = "aten._scaled_dot_product_flash_attention_for_cpu_backward"
    return [_row(forward, name, {"grad_out": output(forward), **tensors}, list(tensors.values()))]


def _recurrent(forward: Operation, _mask: Mask) -> list[Operation]:
    """oneDNN's layer returns all gradients, whichever are asked for."""
    tensors = dict(zip(forward.input_names, forward.input_shapes, strict=True))
    return [_row(forward, "aten.mkldnn_rnn_layer_backward", tensors, **forward.attributes)]


GRADIENTS: dict[str, tuple[str, Callable[[Operation, Mask], list[Operation]]]] = {
    "aten.convolution": ("ConvolutionBackward0", _convolution),
    "aten.mm": ("MmBackward0", _matrices("self", "mat2", "aten.mm", 0)),
    "aten.addmm": ("AddmmBackward0", _matrices("mat1", "mat2", "aten.mm", 1)),
    "aten.addmm_": ("AddmmBackward0", _matrices("mat1", "mat2", "aten.mm", 1)),
    "aten.bmm": ("BmmBackward0", _matrices("self", "mat2", "aten.bmm", 0)),
    "aten.baddbmm": ("BaddbmmBackward0", _matrices("batch1", "batch2", "aten.bmm", 1)),
    "aten.baddbmm_": ("BaddbmmBackward0", _matrices("batch1", "batch2", "aten.bmm", 1)),
    "aten._scaled_dot_product_flash_attention_for_cpu": ("ScaledDotProductFlashAttentionForCpuBackward0", _attention),
    "aten.mkldnn_rnn_layer": ("MkldnnRnnLayerBackward0", _recurrent),
}
"""Product → (its node of the autograd graph, the rows of its backward pass by which gradients are asked for)."""
