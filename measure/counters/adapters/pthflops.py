"""pthflops' count_ops, as its users run it: the torch.fx graph on real tensors, eval mode, gradients on.

It calls its number FLOPs; it is a mixture of multiply-adds and elements. Convolutions and linear layers count a
multiply-add as 1, convolutions 1 more for each bias element, linear layers their output features once, whatever the
batch, so that its law in the batch has a constant. Normalisation and ReLU count 2 an element, pooling its window,
`a + b` and `a * b` one an argument. A transposed convolution is taken for stride² times too much. Its own rules do all
counting; this adapter listens to its interpreter, node by node, and checks that the nodes add up to its number.
"Conv2d" holds multiply-adds (`mac`), "Conv2d elementwise" bias additions (`flop`); functions go by their bare names.

It sees no method of tensors (x.matmul), no F.linear, no attention; those are listed as not understood. It takes a
tuple that a node gives for (value, FLOP, parameters): models that ask a tensor for its size or split it raise whatever
follows from that, or Inconsistent here. Forward only.
"""

import math
from collections import Counter
from typing import Any

import torch
from pthflops import count_ops, ops_fx
from torch.fx import Node

from analysis.operators.registry import bucket_of
from measure.counters.rows import add_call, rows
from measure.model.state_snapshot import evaluating, tensors
from results.errors import Inconsistent, Unavailable
from results.records.counts import FlopCount

NO_ARITHMETIC = frozenset({"Identity", "Dropout", "Dropout2d", "Dropout3d", "Flatten", "stochastic_depth"})
"""Modules and functions without a rule that compute nothing in eval mode, beside ATen's views and copies."""


class NodeListener(ops_fx.ProfilingInterpreter):  # type: ignore[misc]  # pthflops has no types
    """pthflops' interpreter that also tells what it counted for each call, and its calls without a rule."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own: Counter[tuple[str, str]] = Counter()
        self.ignored: Counter[str] = Counter()
        self.not_understood: Counter[str] = Counter()

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_method":  # of a tensor: pthflops has no rules for them
            self._uncounted(f"Tensor.{n.target}", str(n.target), value)
        elif n.op in ("call_module", "call_function"):
            self._called(n, value)
        return value

    def _called(self, n: Node, value: Any) -> None:
        """Adds one call of a module or function."""
        called: Any = n.target  # the path of a module, or a function
        target = self.fetch_attr(called) if n.op == "call_module" else called.__name__
        name = type(target).__name__ if n.op == "call_module" else target
        if ops_fx.count_operations(target) is ops_fx._undefined_op:
            self._uncounted(name, name, value)
            return
        counted = self.flops[n]
        add_call(self.own, name, counted, counted - _elements(target, value, counted))

    def _uncounted(self, name: str, operator: str, value: Any) -> None:
        """Ignored if the call gives no tensor or does no arithmetic; what cannot be placed is not understood."""
        free = not list(tensors(value)) or operator in NO_ARITHMETIC or bucket_of(f"aten.{operator}") == "ignored"
        (self.ignored if free else self.not_understood)[name] += 1


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each operator.

    Raises Unavailable for several inputs, Inconsistent if pthflops' nodes do not add up to its number, and whatever
    torch.fx or pthflops' interpreter raises.
    """
    if len(inputs) != 1:
        raise Unavailable(f"pthflops gives a model one input, this one takes {len(inputs)}")
    original, listeners = ops_fx.ProfilingInterpreter, []

    def listener(*args: Any, **kwargs: Any) -> NodeListener:
        listeners.append(NodeListener(*args, **kwargs))
        return listeners[-1]

    ops_fx.ProfilingInterpreter = listener
    try:
        with evaluating(model):
            total, _ = count_ops(model, inputs[0], print_readable=False)
    finally:
        ops_fx.ProfilingInterpreter = original
    own = listeners[0].own if listeners else Counter()
    if not isinstance(total, int) or total != own.total():
        raise Inconsistent(f"pthflops said {total}, its rules gave {own.total()}: it takes a tuple for a count")
    return rows(
        FlopCount(
            counter="pthflops",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="mac",
            ignored=dict(listeners[0].ignored),
            not_understood=dict(listeners[0].not_understood),
        ),
        own,
    )


def _elements(target: Any, value: Any, counted: int) -> int:
    """How much of what pthflops counted for a call is no multiply-add, by pthflops/ops_fx.py."""
    if isinstance(target, torch.nn.modules.conv._ConvNd):
        return 0 if target.bias is None else target.out_channels * value.shape[0] * math.prod(value.shape[2:])
    if isinstance(target, torch.nn.Linear):
        return 0 if target.bias is None else int(value.shape[-1])
    return 0 if target == "matmul" else counted
