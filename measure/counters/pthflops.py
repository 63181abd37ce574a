"""pthflops' count_ops, as its users run it: the torch.fx graph on real tensors, eval mode, gradients on.

It calls its number FLOPs; it is a mixture of multiply-adds and elements. Convolutions and linear layers count a
multiply-add as 1, convolutions 1 more for each bias element, linear layers their output features once, whatever the
batch, so that its law in the batch has a constant. Normalisation and ReLU count 2 an element, pooling its window,
`a + b` and `a * b` one an argument. A transposed convolution is taken for stride² times too much. Its own rules do all
counting; this adapter listens to its interpreter, node by node, and checks that the nodes add up to its number.
"Conv2d" holds multiply-adds (`mac`), "Conv2d elementwise" bias additions (`flop`); functions go by their bare names.

It sees no method of tensors (x.matmul), no F.linear, no attention; those are listed as not understood. It takes a
tuple that a node gives for (value, FLOP, parameters): models that ask a tensor for its size or split it raise whatever
follows from that, or Inconsistent here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from pthflops import count_ops, ops_fx
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from analysis import kinds
from measure.counters.tallies import Call, rows
from results.errors import Inconsistent, Unavailable
from results.records import FlopCount

NAME = "pthflops"

NO_ARITHMETIC = frozenset({"Identity", "Dropout", "Dropout2d", "Dropout3d", "Flatten", "stochastic_depth"})
"""Modules and functions without a rule that compute nothing in eval mode, beside ATen's views and copies."""

_Convolution = torch.nn.modules.conv._ConvNd


class Listener(ops_fx.ProfilingInterpreter):
    """pthflops' interpreter that also tells what it counted for each call. Its counts are untouched."""

    def __init__(self, *args: Any, calls: list[Call], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls = calls

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op in ("call_module", "call_function", "call_method"):
            self.calls.append(self._call(n, value))
        return value

    def _call(self, n: Node, value: Any) -> Call:
        scopes = tuple(path for path, _ in n.meta.get("nn_module_stack", {}).values())
        target = self.fetch_attr(n.target) if n.op == "call_module" else getattr(n.target, "__name__", n.target)
        name = type(target).__name__ if n.op == "call_module" else target
        if n.op == "call_method":  # of a tensor: pthflops has no rules for them
            return Call(f"Tensor.{name}", scopes, bucket=_bucket(name, value))
        if ops_fx.count_operations(target) is ops_fx._undefined_op:
            return Call(name, scopes, bucket=_bucket(name, value))
        counted = self.flops[n]
        elements = _elements(target, value, counted)
        return Call(name, scopes, counted - elements, elements)


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total, a row for each operator, a total for each module.

    Leaves the model in eval mode. Raises Unavailable for several inputs, Inconsistent if pthflops' nodes do not add up
    to its number, and what torch.fx or pthflops' interpreter raises.
    """
    if len(inputs) != 1:
        raise Unavailable(f"pthflops gives a model one input, this one takes {len(inputs)}")
    calls: list[Call] = []
    with torch.enable_grad(), _listening(calls):
        said, _ = count_ops(model, inputs[0], print_readable=False)
    heard = sum(call.mac + call.elements for call in calls)
    if not isinstance(said, int) or said != heard:
        raise Inconsistent(f"pthflops said {said}, its rules gave {heard}: it takes a tuple for a count")
    return rows(calls, counter=NAME, workload=workload, batch_size=batch_size)


@contextlib.contextmanager
def _listening(calls: list[Call]) -> Iterator[None]:
    """count_ops with an interpreter that is listened to; put back afterwards."""
    original = ops_fx.ProfilingInterpreter
    ops_fx.ProfilingInterpreter = partial(Listener, calls=calls)
    try:
        yield
    finally:
        ops_fx.ProfilingInterpreter = original


def _elements(target: Any, value: Any, counted: int) -> int:
    """How much of what pthflops counted for a call is no multiply-add, by pthflops/ops_fx.py."""
    if isinstance(target, _Convolution):
        return 0 if target.bias is None else target.out_channels * value.shape[0] * math.prod(value.shape[2:])
    if isinstance(target, torch.nn.Linear):
        return 0 if target.bias is None else int(value.shape[-1])
    return 0 if target == "matmul" else counted


def _bucket(name: str, value: Any) -> str:
    """Ignored if the call gives no tensor or does no arithmetic; what cannot be placed is not understood."""
    gives_tensor = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))
    free = not gives_tensor or name in NO_ARITHMETIC or kinds.bucket_of(f"aten.{name}") == "ignored"
    return "ignored" if free else "not_understood"
