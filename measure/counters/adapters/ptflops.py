"""ptflops' default backend (`pytorch`), as its users run it: hooks on modules, real tensors, eval mode, gradients on.

It prints multiply-adds a sample. That number is a mixture: convolutions and linear layers count a multiply-add as 1
and add 1 for each bias element; normalisation, activation and pooling count elements, those that are a module calling
a functional (nn.ReLU, pooling) twice. It divides what modules did by the batch, but not what functions did, so that its
print means something at a batch of 1 only. Here `native_value` is the whole batch's, from ptflops' own accumulators
before that division (equal to its print at a batch of 1), and `reason` tells what it printed. Its own hooks do all
counting; this adapter listens to each, so that rows can be distinguished, and checks that they add up to the print.

Each operator's row has one unit: "Conv2d" holds its multiply-adds (`mac`), "Conv2d elementwise" its bias additions
(`flop`). It does not see `@`, F.linear, F.conv2d,
attention as a function, or `a + b`; leaf modules without a rule are listed as not understood. Forward only.
"""

import contextlib
import inspect
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch
from ptflops import get_model_complexity_info
from ptflops.pytorch_ops import FUNCTIONAL_MAPPING, MODULES_MAPPING, TENSOR_OPS_MAPPING

from measure.counters.harness.rows import Counted, recurrent_multiply_adds, rows
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent, one_line
from results.records.counts import FlopCount

NAME = "ptflops"

NO_ARITHMETIC = frozenset({"Identity", "Dropout", "Dropout2d", "Dropout3d", "Flatten", "StochasticDepth", "Permute"})
"""Leaf modules without a rule that compute nothing in eval mode: ignored rightly."""

MULTIPLY_ADD = frozenset({"matmul", "mm", "bmm", "addmm", "baddbmm"})
"""Functions of torch whose count is of multiply-adds."""


@dataclass
class Tally:
    """What ptflops' hooks and function rules counted, for the whole batch.

    modules: by id of the module. functions: by name.
    """

    modules: Counter[int] = field(default_factory=Counter)
    additions: Counter[int] = field(default_factory=Counter)  # the part of it that is no multiply-add
    functions: Counter[str] = field(default_factory=Counter)
    function_additions: Counter[str] = field(default_factory=Counter)


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each kind of module or function.

    Raises Inconsistent if ptflops gave up, or if its hooks do not add up to what it printed.
    """
    tally, unknown = Tally(), Counter[str]()
    with evaluating(model), _calls_of_unknown(model, unknown):
        hooks = {kind: _hook(rule, tally) for kind, rule in MODULES_MAPPING.items()}
        functions = _listening(FUNCTIONAL_MAPPING, tally, "F")
        operators = _listening(TENSOR_OPS_MAPPING, tally, "torch")
        with functions, operators:
            printed, parameters = ask(model, inputs, "pytorch", hooks)
    own = _counts(model, tally)
    native = _check(printed, own, tally, batch_size if len(inputs) == 1 else 1)
    blank = FlopCount(
        counter=NAME,
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="mac",
        ignored={name: calls for name, calls in unknown.items() if name in NO_ARITHMETIC},
        not_understood={name: calls for name, calls in unknown.items() if name not in NO_ARITHMETIC},
        reason=""
        if printed == native
        else f"note: ptflops printed {printed}; it divides what modules did by the batch",
        parameters=parameters,
        printed=None if printed == native else printed,
    )
    return rows(blank, _sorted(own))


def _sorted(counted: Counted) -> Counted:
    """Multiply-adds first, by name; what counted nothing is left out."""
    ordered = sorted(counted.items(), key=lambda item: (item[0][1] != "mac", item[0][0]))
    return {key: value for key, value in ordered if value}


def ask(
    model: torch.nn.Module, inputs: tuple[Any, ...], backend: str, hooks: Mapping[Any, Any], **more: Any
) -> tuple[int, int]:
    """ptflops' own numbers of multiply-adds and of parameters that want a gradient. hooks: its rules, listened to.

    Raises Inconsistent if it gave up.
    """
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        printed, parameters = get_model_complexity_info(
            model,
            (1,),  # not used: the constructor gives the input
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=lambda _: _single(model, inputs),
            custom_modules_hooks=hooks,
            backend=backend,
            **more,
        )
    if printed is None:
        lines = [line for line in output.getvalue().splitlines() if line.strip()]
        raise Inconsistent(f"ptflops gave no number: {one_line(' '.join(lines), 300)}")
    return int(printed), int(parameters)


def _single(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """ptflops calls model(x), or model(**x) for a dictionary."""
    if len(inputs) == 1:
        return inputs[0]
    return dict(zip(inspect.signature(model.forward).parameters, inputs, strict=False))


def _hook(rule: Callable[..., None], tally: Tally) -> Callable[..., None]:
    """ptflops' rule for one kind of module, listened to."""

    def listen(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        before = module.__flops__
        rule(module, inputs, output)
        counted = module.__flops__ - before
        tally.modules[id(module)] += counted
        tally.additions[id(module)] += counted - _multiply_adds(module, inputs, output, counted)

    return listen


@contextlib.contextmanager
def _listening(rules: MutableMapping[Any, Callable[..., Any]], tally: Tally, library: str) -> Iterator[None]:
    """ptflops' rules for functions, listened to while it patches torch; put back afterwards."""
    original = dict(rules)

    def listener(function: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__

        def listen(*args: Any, **kwargs: Any) -> Any:
            counted = int(rule(*args, **kwargs))
            key = f"{library}.{name}"
            tally.functions[key] += counted
            bias = args[0].numel() if name in ("addmm", "baddbmm") and kwargs.get("beta", 1) != 0 else 0
            tally.function_additions[key] += bias if name in MULTIPLY_ADD else counted
            return counted

        return listen

    rules.update({function: listener(function, rule) for function, rule in original.items()})
    try:
        yield
    finally:
        rules.update(original)


def _multiply_adds(module: Any, inputs: tuple[Any, ...], output: Any, counted: int) -> int:
    """How many of the elements counted for one call are multiply-adds, by ptflops/pytorch_ops.py.

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
    """Three projections, scores, weighted sum, output projection, each as ptflops takes its sizes."""
    batch, length = (0, 1) if module.batch_first else (1, 0)
    q, k, v = (tensor.shape[length] for tensor in (query, key, value))
    qdim, kdim, vdim = (tensor.shape[2] for tensor in (query, key, value))
    heads = module.num_heads
    projections = q * qdim**2 + k * kdim**2 + v * vdim**2 + q * vdim**2
    scores = heads * q * k * (qdim // heads + vdim // heads)
    multiplied: int = query.shape[batch] * (projections + scores)
    return multiplied


def _counted_modules(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules whose counts ptflops adds up: it does not look inside one that has a rule, and visits a module
    that two parents share twice."""
    if type(module) in MODULES_MAPPING:
        yield module
        return
    for child in module.children():
        yield from _counted_modules(child)


def _counts(model: torch.nn.Module, tally: Tally) -> Counter[tuple[str, str]]:
    """Multiply-adds and other elements of the whole batch, by kind of module or function."""
    own: Counter[tuple[str, str]] = Counter()
    parts = [
        (type(module).__name__, tally.modules[id(module)], tally.additions[id(module)])
        for module in _counted_modules(model)
    ]
    parts += [(name, counted, tally.function_additions[name]) for name, counted in tally.functions.items()]
    for name, counted, other in parts:
        own[name, "mac"] += counted - other
        own[name if counted == other else f"{name} elementwise", "flop"] += other
    return own


def _check(printed: int, own: Counter[tuple[str, str]], tally: Tally, divisor: int) -> float:
    """The sum of all rows. Raises Inconsistent unless they, with ptflops' own division, give its print."""
    native = own.total()
    functions = sum(tally.functions.values())
    modules = native - functions
    if printed != int(modules / divisor + functions):
        raise Inconsistent(f"ptflops printed {printed}, its hooks gave {modules} / {divisor} + {functions}")
    return native


@contextlib.contextmanager
def _calls_of_unknown(model: torch.nn.Module, unknown: Counter[str]) -> Iterator[None]:
    """Counts the calls of leaf modules that ptflops has no rule for."""

    def note(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        unknown[type(module).__name__] += 1

    leaves = [m for m in model.modules() if not list(m.children()) and type(m) not in MODULES_MAPPING]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
