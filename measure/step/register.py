"""A rule for an operation that this program does not know: a user's own, or another library's.

The rule is of this process; a command learns it from the model's file, which registers it when it is imported. Not
claimed: that the formula is right, and anything of an operation that no dispatcher sees.

What can the device at hand really do? Its fastest products and convolutions, from Python in one call.

`python -m runners.ceiling` asks the same, with copies and launches. Not claimed: more than the best of what was tried.

How much memory does a step of this model need, and what fills it? From Python in one call.

`python -m runners.footprint` asks the same, with allocators and the largest batch. Not claimed: workspaces and
fragmentation, which are the device's (`docs/footprint.md`).

The exact trace of a step of any model, with its optimizer: what `count` and `footprint` read.

On fake tensors: no memory, no device, and the caller's model is left as it is. A model whose course depends on values
runs as a copy with values, and the notes say so.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS
from analysis.footprint import live_bytes
from analysis.footprint.live_bytes import Footprint
from analysis.operators import registry
from analysis.operators.cost import STORED, Cost
from measure.ceiling.ceilings import ceilings_by_precision
from measure.device.environment import device_facts
from measure.dispatch import schemas
from measure.model.state_snapshot import arguments
from measure.operations.model_trace import MakeOptimizer, trace_any
from measure.operations.tracer import Trace
from measure.timing.clocks import clock_for
from results.records.cell import Ceiling
from results.records.counts import Operation

Optimizer = torch.optim.Optimizer | type[torch.optim.Optimizer] | MakeOptimizer


def step_trace(
    model: torch.nn.Module,
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    optimizer: Optimizer | None,
    loss_of: Callable[[Any], Any] | None,
    train: bool | None = None,
) -> Trace:
    """The operations and storages of forward, backward and optimizer step of model(*inputs, **kwargs).

    inputs: a tensor, or a tuple or list of arguments. optimizer: one that exists (another of its class and defaults is
    made for the copy of the model), a class, or a function of the parameters. train: the mode that the model runs in;
    None: each module in its own. Raises ValueError for what is no model, Unavailable with the cause where the step
    cannot be run.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a torch.nn.Module as model, got {type(model).__name__}")
    make = None if optimizer is None else _maker(optimizer)
    return trace_any(model, arguments(inputs), kwargs or {}, train=train, loss_of=loss_of, make_optimizer=make)


def _maker(optimizer: Optimizer) -> MakeOptimizer:
    if isinstance(optimizer, torch.optim.Optimizer):
        kind: Any = type(optimizer)
        defaults = dict(optimizer.defaults)
        return lambda parameters: kind(parameters, **defaults)
    if callable(optimizer):
        return optimizer
    raise ValueError(f"expected an optimizer, its class or a function that makes one, got {type(optimizer).__name__}")


Formula = Callable[..., int]

_NAME = re.compile(r"[A-Za-z_]\w*(::|\.)[A-Za-z_]\w*")


def register(operation: str, formula: Formula | int, *, kind: str = "matmul") -> None:
    """Count calls of an operation by a formula from now on.

    operation: as torch.library names it, "namespace::name". formula: called with the sizes of the input tensors, one
    argument each, and `out` with those of the output tensors (one tuple, or a list of them where there are several):
    → FLOP of one call, a multiply-add being 2; with an argument `stored` how many values each sparse input stores, by
    the argument's name; or a number of FLOP for each call, such as 0. kind: of the operation; a
    product's ("convolution", "matmul", "attention", "recurrent") is model FLOP, any other kind's is not.
    Raises ValueError for a name, kind or formula that cannot be right, and for an operation that has a rule already.

    >>> import flopledger
    >>> flopledger.register("mylibrary::product", lambda a, b, out: 2 * a[0] * a[1] * b[1])
    """
    if not _NAME.fullmatch(operation):
        raise ValueError(f"expected an operation as 'namespace::name', got {operation!r}")
    name = operation.replace("::", ".")
    if kind not in registry.KINDS:
        raise ValueError(f"expected a kind of operation, got {kind!r}; there are: {', '.join(registry.KINDS)}")
    if not callable(formula) and not (isinstance(formula, int) and formula >= 0):
        raise ValueError(f"expected a function of sizes or a number of FLOP from 0 as formula, got {formula!r}")
    known = registry.rule_of(name)
    if known is not None and not isinstance(known.reader, _Reader):
        raise ValueError(f"expected an operation without a rule, got {operation!r}, which is a {known.kind} here")
    registry.add_rule(name, registry.Rule(kind, "counted", _Reader(operation, formula, kind in registry.PRODUCTS)))
    schemas.clear_cache()


class _Reader:
    """The cost of one call by a user's formula."""

    def __init__(self, operation: str, formula: Formula | int, is_product: bool) -> None:
        self._operation = operation
        self._formula = formula
        self._is_product = is_product

    def __call__(self, operation: Operation) -> Cost:
        flop = self._flop(operation)
        return Cost(model_flop=flop) if self._is_product else Cost(other_flop=flop)

    def _flop(self, operation: Operation) -> Any:
        if not callable(self._formula):
            return self._formula
        outputs = list(operation.output_shapes)
        named = {"out": outputs[0] if len(outputs) == 1 else outputs}
        if "stored" in inspect.signature(self._formula).parameters:
            named["stored"] = operation.attributes.get(STORED, {})
        try:
            return self._formula(*operation.input_shapes, **named)
        except Exception as fault:
            sizes = ", ".join(map(str, operation.input_shapes))
            raise ValueError(f"the formula of {self._operation} failed for inputs of {sizes}: {fault}") from fault


def ceilings(device: str = "cpu", precisions: Sequence[str] = ("fp32",), budget_s: float = 20.0) -> list[Ceiling]:
    """Measure the device for `budget_s` seconds: a row for each kernel that was tried.

    precisions: of fp32, tf32, amp-bf16, amp-fp16; what this device refuses is a row with its reason. What they give is
    what `UtilizationMeter(ceilings=…)` divides by. Raises ValueError for an unknown precision or a budget that is not
    above 0.
    """
    unknown = [name for name in precisions if name not in PRECISIONS]
    if unknown or not precisions:
        raise ValueError(f"expected precisions of {', '.join(PRECISIONS)}, got {', '.join(unknown) or 'none'}")
    name = str(device_facts(device)["name"] or "")
    rows = ceilings_by_precision(device, precisions, clock_for(device), budget_s)
    return [replace(row, device_name=name) for row in rows]


def footprint(
    model: torch.nn.Module,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Optimizer | None = None,
    loss_of: Callable[[Any], Any] | None = None,
) -> Footprint:
    """Bytes alive at each operation of one eager step, by what they are for. Arguments and errors as `count`.

    >>> import torch, flopledger
    >>> found = flopledger.footprint(torch.nn.Linear(8, 4), torch.randn(2, 8))
    >>> found.by_category["weight"]  # 8 × 4 + 4 numbers of 4 bytes
    144
    """
    trace = step_trace(model, inputs, kwargs, optimizer, loss_of)
    return live_bytes.footprint(trace.operations, trace.storages)
