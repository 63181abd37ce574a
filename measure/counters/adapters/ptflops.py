"""Runs both backends of ptflops as its users do, to count a model's forward pass; returns `FlopCount` rows.

`ptflops` and `ptflops_aten` take a model and its inputs, and run it on real tensors in eval mode with gradients on. The
library's own rules do all counting. An adapter observes each rule to separate two units, and checks that the rules add
up to what ptflops prints. So "Conv2d" has the multiply-adds of convolutions (`mac`), and "Conv2d elementwise" their
bias additions (`flop`).
"""

import contextlib
import inspect
import io
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import torch
from ptflops import get_model_complexity_info
from ptflops.aten_ops import ATEN_OPS_MAPPING
from ptflops.pytorch_ops import FUNCTIONAL_MAPPING, MODULES_MAPPING, TENSOR_OPS_MAPPING

from analysis.operators.registry import bucket_of
from measure.counters.adapters.wrapped import TORCH, put_back
from measure.counters.rows import (
    UncountedCalls,
    add_call,
    recurrent_multiply_adds,
    rows,
    sum_counts,
    uncounted_leaves,
    walk_modules,
)
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent, one_line
from results.records.counts import FlopCount

MULTIPLY_ADD = frozenset({"matmul", "mm", "bmm", "addmm", "baddbmm"})
"""Functions of torch whose count is in multiply-adds."""

Own = Counter[tuple[str, str]]
"""(kind of module or function, unit) → what was counted, for the whole batch."""


def ptflops(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each kind of module or function.

    The default backend (`pytorch`) has hooks on modules, and prints multiply-adds per sample. That number mixes units.
    Convolutions and linear layers count a multiply-add as 1, and a bias 1 per output. Batch norm counts 2 per element
    with weights and 1 without, activation and pooling 1, and again in the functional that a module calls (nn.ReLU,
    pooling). The print divides the modules' counts by the batch, but not the functions', so it is meaningful only at a
    batch of 1. `native_value` is the whole batch's, from ptflops' own accumulators before that division. Where the
    print differs, `reason` has it. The backend does not see `@`, F.linear, F.conv2d, attention as a function, or
    `a + b`. Leaf modules without a rule are listed as not understood.

    Raises Inconsistent if ptflops gave up, or if its hooks do not add up to what it printed.
    """
    modules: defaultdict[int, Own] = defaultdict(Counter)  # by id
    functions: Own = Counter()
    with evaluating(model):
        ignored, unsupported = uncounted_leaves(model, MODULES_MAPPING)
        hooks = {kind: _hook(rule, modules) for kind, rule in MODULES_MAPPING.items()}
        with (
            patch.dict(FUNCTIONAL_MAPPING, _listening_rules(FUNCTIONAL_MAPPING, functions, "F")),
            patch.dict(TENSOR_OPS_MAPPING, _listening_rules(TENSOR_OPS_MAPPING, functions, "torch")),
        ):
            printed, parameters = run_ptflops(model, inputs, "pytorch", hooks)
    of_modules = sum_counts(modules[id(module)] for module in walk_modules(model, MODULES_MAPPING))
    summed, divisor = sum(of_modules.values()), batch_size if len(inputs) == 1 else 1
    if printed != int(summed / divisor + functions.total()):
        raise Inconsistent(f"ptflops printed {printed}, its hooks gave {summed} / {divisor} + {functions.total()}")
    is_printed = printed == summed + functions.total()
    blank = FlopCount(
        counter="ptflops",
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="mac",
        ignored=dict(ignored),
        not_understood=dict(unsupported),
        reason="" if is_printed else f"note: ptflops printed {printed}: it divides the modules' counts by the batch",
        parameters=parameters,
        printed=None if is_printed else printed,
    )
    own = sum_counts((of_modules, functions))
    ordered = sorted((item for item in own.items() if item[1]), key=lambda item: (item[0][1] != "mac", item[0][0]))
    return rows(blank, dict(ordered))


def run_ptflops(
    model: torch.nn.Module, inputs: tuple[Any, ...], backend: str, hooks: Mapping[Any, Any]
) -> tuple[int, int]:
    """Return ptflops' own numbers of multiply-adds and of parameters that need a gradient. hooks: its rules, observed.

    Raises Inconsistent if it gave up.
    """
    output = io.StringIO()
    with contextlib.redirect_stdout(output), put_back(TORCH):  # ptflops leaves methods of Tensor on the class
        printed, parameters = get_model_complexity_info(
            model,
            (1,),  # not used, because there is an input_constructor
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=lambda _: (  # ptflops calls model(x), or model(**x) for a dictionary
                inputs[0]
                if len(inputs) == 1
                else dict(zip(inspect.signature(model.forward).parameters, inputs, strict=False))
            ),
            custom_modules_hooks=hooks,
            backend=backend,
        )
    if printed is None:
        lines = [line for line in output.getvalue().splitlines() if line.strip()]
        raise Inconsistent(f"ptflops gave no number: {one_line(' '.join(lines), 300)}")
    return int(printed), int(parameters)


def _hook(rule: Callable[..., None], modules: Mapping[int, Own]) -> Callable[..., None]:
    """Return ptflops' rule for one kind of module, wrapped to be observed."""

    def listen(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        before = module.__flops__
        rule(module, inputs, output)
        counted = module.__flops__ - before
        multiply_adds = _multiply_adds(module, inputs, output, counted)
        add_call(modules[id(module)], type(module).__name__, counted, multiply_adds)

    return listen


def _listening_rules(
    rules: Mapping[Any, Callable[..., Any]], functions: Own, library: str
) -> dict[Any, Callable[..., int]]:
    """Return ptflops' rules for functions, wrapped to be observed."""

    def listener(name: str, rule: Callable[..., Any]) -> Callable[..., int]:
        def listen(*args: Any, **kwargs: Any) -> int:
            counted = int(rule(*args, **kwargs))
            bias = args[0].numel() if name in ("addmm", "baddbmm") and kwargs.get("beta", 1) != 0 else 0
            add_call(functions, f"{library}.{name}", counted, counted - bias if name in MULTIPLY_ADD else 0)
            return counted

        return listen

    return {function: listener(function.__name__, rule) for function, rule in rules.items()}


def _multiply_adds(module: Any, inputs: tuple[Any, ...], output: Any, counted: int) -> int:
    """Return how many of the elements counted for one call are multiply-adds, by ptflops/pytorch_ops.py.

    Convolutions and linear layers add 1 for each output element that has a bias, deformable ones 24 or 25 more for
    each tap and position.
    """
    if isinstance(module, (torch.nn.modules.conv._ConvNd, torch.nn.Linear)):
        return counted - (output.numel() if module.bias is not None else 0)
    if isinstance(module, torch.nn.MultiheadAttention):
        return _attention_multiply_adds(module, *inputs[:3])
    if isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase)):
        return recurrent_multiply_adds(module, inputs[0])
    if type(module).__name__ == "DeformConv2d":
        taps = math.prod(module.kernel_size) * module.in_channels * (module.out_channels // module.groups)
        multiplied: int = taps * output.shape[0] * math.prod(output.shape[2:])
        return multiplied
    return 0


def _attention_multiply_adds(
    module: torch.nn.MultiheadAttention, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> int:
    """Return the multiply-adds of three projections, scores, weighted sum and output projection, by the sizes that
    ptflops assumes."""
    batch, length = (0, 1) if module.batch_first else (1, 0)
    q, k, v = (tensor.shape[length] for tensor in (query, key, value))
    qdim, kdim, vdim = (tensor.shape[2] for tensor in (query, key, value))
    heads = module.num_heads
    projections = q * qdim**2 + k * kdim**2 + v * vdim**2 + q * vdim**2
    scores = heads * q * k * (qdim // heads + vdim // heads)
    multiplied: int = query.shape[batch] * (projections + scores)
    return multiplied


aten = torch.ops.aten

BIAS_AT = {aten.addmm: 0, aten.convolution: 2, aten._convolution: 2}
"""Operator → where its bias is among its arguments."""


def _aten_rule(operator: Any, rule: Callable[[Any, Any], int], own: Own) -> Callable[[Any, Any], int]:
    """Return ptflops' rule for one operator, wrapped to be observed."""

    def listen(arguments: Any, outputs: Any) -> int:
        counted = int(rule(arguments, outputs))
        bare = list(arguments)
        if operator in BIAS_AT:
            bare[BIAS_AT[operator]] = None
        add_call(own, str(operator), counted, int(rule(bare, outputs)))
        return counted

    return listen


def ptflops_aten(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each operator.

    The backend `aten` is a dispatch mode, and prints multiply-adds of the whole batch. A bias of a convolution or addmm
    counts 1 per output. Nothing else is counted: no normalisation, activation, pooling or addition, and no baddbmm,
    fused attention or recurrent kernel. The adapter calls each rule again without the bias to separate the two units.
    "aten.convolution" has the multiply-adds, and "aten.convolution elementwise" the bias additions. Calls without a
    rule are ignored if they do no arithmetic (views, copies), else not understood.

    Raises Inconsistent if ptflops gave up, or if its rules do not add up to its print.
    """
    own: Own = Counter()
    seen = UncountedCalls(lambda: False)
    hooks = {operator: _aten_rule(operator, rule, own) for operator, rule in ATEN_OPS_MAPPING.items()}
    with evaluating(model), seen:
        printed, parameters = run_ptflops(model, inputs, "aten", hooks)
    if printed != (counted := own.total()):
        raise Inconsistent(f"ptflops printed {printed}, its rules gave {counted}")
    others = {name: calls for name, calls in seen.calls.items() if name not in {str(operator) for operator in hooks}}
    return rows(
        FlopCount(
            counter="ptflops_aten",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="mac",
            ignored={name: calls for name, calls in others.items() if bucket_of(name) == "ignored"},
            not_understood={name: calls for name, calls in others.items() if bucket_of(name) != "ignored"},
            parameters=parameters,
        ),
        own,
    )
