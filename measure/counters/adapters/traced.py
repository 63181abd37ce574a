"""Counts a model's forward pass with fvcore and pthflops, which read a graph of the model; returns `FlopCount` rows.

`fvcore` reads a graph of torch.jit, and `pthflops` a graph of torch.fx. Both take a model and its inputs, and run it on
real tensors in eval mode with gradients on. The libraries' own rules do all counting. A row names its unit: `mac` for
multiply-adds, `flop` for elementary operations. The native value of a total is the library's own number, which mixes
both units. The `flop` of a total is the sum of its operators' FLOP.
"""

import math
import warnings
from collections import Counter
from typing import Any
from unittest.mock import patch

import torch

from analysis.operators.registry import bucket_of
from measure.counters.rows import NO_ARITHMETIC, add_call, rows
from measure.model.state_snapshot import evaluating, tensors
from results.errors import Inconsistent, Unavailable
from results.records.counts import FlopCount

MATRIX_OPERATORS = frozenset({"conv", "linear", "matmul", "mm", "bmm", "addmm", "einsum"})
"""fvcore's operators whose native unit is a multiply-add: fvcore/nn/flop_count.py."""


class TensorsOnly(torch.nn.Module):
    """Returns the model's output as a tuple of tensors, since tracing refuses dictionaries. Adds no operation."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        return tuple(tensors(self.model(*inputs)))


def fvcore(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each operator.

    Multiply-adds of convolutions and matrix products count 1. Other rules count elementary operations. Batch norm in
    eval mode counts 2 per element, layer norm 5, adaptive pooling 1 per input, bilinear resizing 4 per output. fvcore
    does not see scaled_dot_product_attention, recurrent layers, baddbmm or padding="same". Those calls are listed as
    not understood, and so are residual additions and activations without a rule.
    """
    with warnings.catch_warnings():
        # it scripts its focal loss when imported; torch announces the end of scripting
        warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", module=r"torch\.jit")
        from fvcore.nn import FlopCountAnalysis, parameter_count

    ignored: Counter[str] = Counter()
    with evaluating(model):
        analysis = FlopCountAnalysis(TensorsOnly(model).eval(), inputs)
        analysis.unsupported_ops_warnings(False)  # they are in the rows
        analysis.uncalled_modules_warnings(False)
        is_ignored = analysis._should_ignore_node

        def listen(node: Any) -> bool:
            if (left_out := bool(is_ignored(node))) and not node.kind().startswith("prim::"):  # the graph's bookkeeping
                ignored[node.kind()] += 1
            return left_out

        analysis._should_ignore_node = listen
        analysis.total()
    modules = (name for name in analysis.uncalled_modules() if analysis._has_forward(name))
    uncalled = sorted(name.removeprefix("model.") for name in modules)
    more = f" and {len(uncalled) - 3} more" if len(uncalled) > 3 else ""
    blank = FlopCount(
        counter="fvcore",
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="mac",
        ignored=dict(ignored),
        not_understood=dict(analysis.unsupported_ops()),
        reason=f"note: modules never called: {', '.join(uncalled[:3])}{more}" if uncalled else "",
        parameters=parameter_count(model)[""],
    )
    counted = sorted(analysis.by_operator().items())
    return rows(blank, {(name, "mac" if name in MATRIX_OPERATORS else "flop"): value for name, value in counted})


def pthflops(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each operator.

    Convolutions and linear layers count a multiply-add as 1. A bias counts 1 per output of a convolution; in a linear
    layer it counts the output features once, whatever the batch, so that the count is not proportional to the batch.
    Batch norm and ReLU count 2 per element. Average pooling counts its window per output, max pooling 1 less, `a + b`
    and `a * b` 1 per output for each argument. A transposed convolution counts stride² times too much. pthflops has no
    rule for methods of tensors (x.matmul), F.linear or attention. It takes any tuple that a node returns for (value,
    FLOP, parameters): models that split a tensor or use its size raise whatever follows from that, or Inconsistent
    here. Its interpreter is observed, node by node.

    Raises Unavailable for several inputs, Inconsistent if pthflops' nodes do not add up to its number, and whatever
    torch.fx or pthflops' interpreter raises.
    """
    from pthflops import count_ops, ops_fx

    if len(inputs) != 1:
        raise Unavailable(f"pthflops gives a model one input, this one takes {len(inputs)}")
    own: Counter[tuple[str, str]] = Counter()
    ignored: Counter[str] = Counter()
    unsupported: Counter[str] = Counter()
    original = ops_fx.ProfilingInterpreter

    def interpreter(*args: Any, **kwargs: Any) -> Any:
        listened = original(*args, **kwargs)
        run_node = listened.run_node

        def run(node: Any) -> Any:
            value = run_node(node)
            called = node.target  # the path of a module, a function, or the name of a method (which has no rule)
            if node.op == "call_module":
                called = listened.fetch_attr(called)
            elif node.op == "call_function":
                called = called.__name__
            name = type(called).__name__ if node.op == "call_module" else called
            if node.op not in ("call_module", "call_function", "call_method"):
                return value
            if node.op != "call_method" and ops_fx.count_operations(called) is not ops_fx._undefined_op:
                counted = listened.flops[node]
                add_call(own, name, counted, counted - _elements(called, value, counted))
                return value
            # ignored if it gives no tensor or does no arithmetic; what cannot be placed is not understood
            free = name in NO_ARITHMETIC or bucket_of(f"aten.{name}") == "ignored" or not list(tensors(value))
            name = f"Tensor.{name}" if node.op == "call_method" else name
            (ignored if free else unsupported)[name] += 1
            return value

        listened.run_node = run
        return listened

    with patch.object(ops_fx, "ProfilingInterpreter", interpreter), evaluating(model):
        total, _ = count_ops(model, inputs[0], print_readable=False)
    if not isinstance(total, int) or total != own.total():
        raise Inconsistent(f"pthflops gave {total}, its rules {own.total()}: it takes a tuple for a count")
    return rows(
        FlopCount(
            counter="pthflops",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="mac",
            ignored=dict(ignored),
            not_understood=dict(unsupported),
        ),
        own,
    )


def _elements(target: Any, value: Any, counted: int) -> int:
    """Return how many of the operations that pthflops counted for a call are not multiply-adds, by
    pthflops/ops_fx.py."""
    if isinstance(target, torch.nn.modules.conv._ConvNd):
        return 0 if target.bias is None else target.out_channels * value.shape[0] * math.prod(value.shape[2:])
    if isinstance(target, torch.nn.Linear):
        return 0 if target.bias is None else int(value.shape[-1])
    return 0 if target == "matmul" else counted
