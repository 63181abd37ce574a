"""Answers from Python, in one call each: a step's FLOP (`count`), its memory (`footprint`), a device's `ceilings`.

`count` and `footprint` take a model and its inputs, and return a `StepCount` and a `Footprint`. `ceilings` takes a
device and returns `Ceiling` rows, the highest rates measured on it. `register` gives a user's own operation a formula,
for this process. The commands `runners.count`, `runners.footprint` and `runners.ceiling` answer the same questions. Not
claimed: that a GPU runs the same operations (`docs/limits.md`); workspaces and fragmentation (`docs/footprint.md`);
that a user's formula is right.
"""

import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS
from analysis.footprint import live_bytes
from analysis.footprint.live_bytes import Footprint
from analysis.operators import registry
from analysis.operators.attention_conventions import AttentionFlop, attention_flop
from analysis.operators.cost import STORED, Cost
from analysis.operators.names import KINDS
from measure.ceiling.ceilings import ceilings_by_precision
from measure.device.environment import device_facts
from measure.model.state_snapshot import arguments
from measure.operations import schemas
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
    """Return the operations and storages of forward, backward and optimizer step of model(*inputs, **kwargs).

    inputs: a tensor, or a tuple or list of arguments. optimizer: an object (another of its class and defaults is made
    for the copy of the model), a class, or a function of the parameters. train: whether the model runs in train or eval
    mode; None: each module in its present mode. Raises ValueError if model is not a module or optimizer is none of
    these, Unavailable with the cause where the step cannot be run.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a torch.nn.Module as model, got {type(model).__name__}")
    make: Any = optimizer
    if isinstance(optimizer, torch.optim.Optimizer):
        make = partial(type(optimizer), **optimizer.defaults)
    elif make is not None and not callable(make):
        kind = type(make).__name__
        raise ValueError(f"expected an optimizer, its class or a function that makes one, got {kind}")
    return trace_any(model, arguments(inputs), kwargs or {}, train=train, loss_of=loss_of, make_optimizer=make)


Formula = Callable[..., int]

_NAME = re.compile(r"[A-Za-z_]\w*(::|\.)[A-Za-z_]\w*")


def register(operation: str, formula: Formula | int, *, kind: str = "matmul") -> None:
    """Count calls of an operation by a formula from now on.

    operation: as torch.library names it, "namespace::name". formula: the FLOP of one call, a multiply-add being 2: a
    number, such as 0, or a function. The function gets the sizes of each input tensor as a positional argument, and as
    `out` those of the output tensor (a list of sizes if there are several). If it has an argument `stored`, it also
    gets input name → number of values that a sparse input stores. kind: of the operation; FLOP of a product
    ("convolution", "matmul", "attention", "recurrent") are model FLOP, those of any other kind are not.
    Raises ValueError for an invalid name, kind or formula, and for an operation that has a rule already.

    >>> import flopledger
    >>> flopledger.register("mylibrary::product", lambda a, b, out: 2 * a[0] * a[1] * b[1])
    """
    if not _NAME.fullmatch(operation):
        raise ValueError(f"expected an operation as 'namespace::name', got {operation!r}")
    name = operation.replace("::", ".")
    if kind not in KINDS:
        raise ValueError(f"expected a kind of operation, got {kind!r}; there are: {', '.join(KINDS)}")
    if not callable(formula) and not (isinstance(formula, int) and formula >= 0):
        raise ValueError(f"expected a function of sizes or a number of FLOP from 0 as formula, got {formula!r}")
    known = registry.rule_of(name)
    if known is not None and getattr(known.reader, "func", None) is not _formula_cost:
        raise ValueError(f"expected an operation without a rule, got {operation!r}, which is a {known.kind} here")
    reader = partial(_formula_cost, formula, operation, kind in registry.PRODUCTS)
    registry.add_rule(name, registry.Rule(kind, "counted", reader))
    schemas.clear_cache()


def _formula_cost(formula: Formula | int, name: str, is_product: bool, operation: Operation) -> Cost:
    """Return the cost of one call of an operation of this name by a user's formula."""
    flop = formula
    if callable(formula):
        outputs = list(operation.output_shapes)
        named = {"out": outputs[0] if len(outputs) == 1 else outputs}
        if "stored" in inspect.signature(formula).parameters:
            named["stored"] = operation.attributes.get(STORED, {})
        try:
            flop = formula(*operation.input_shapes, **named)
        except Exception as fault:
            sizes = ", ".join(map(str, operation.input_shapes))
            raise ValueError(f"the formula of {name} failed for inputs of {sizes}: {fault}") from fault
    return Cost(model_flop=flop) if is_product else Cost(other_flop=flop)


def ceilings(device: str = "cpu", precisions: Sequence[str] = ("fp32",), budget_s: float = 20.0) -> list[Ceiling]:
    """Measure the device for `budget_s` seconds: a row for each kernel that was tried.

    precisions: of fp32, tf32, amp-bf16, amp-fp16; one that this device refuses has a row with the reason.
    `UtilizationMeter(ceilings=…)` divides by these rows. Raises ValueError for an unknown precision or a budget that is
    not above 0.
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
    """Compute the bytes alive at each operation of one eager step, by category (weights, gradients, …). Arguments and
    errors are those of `count`.

    >>> import torch, flopledger
    >>> memory = flopledger.footprint(torch.nn.Linear(8, 4), torch.randn(2, 8))
    >>> memory.by_category["weight"]  # 8 × 4 + 4 numbers of 4 bytes
    144
    """
    trace = step_trace(model, inputs, kwargs, optimizer, loss_of)
    return live_bytes.footprint(trace.operations, trace.storages)


PHASES = ("forward", "backward", "recompute")


@dataclass(frozen=True)
class OperationCost:
    """FLOP of one kind of operation in one module, without its children, in one phase. calls: number of operations.

    model_flop, other_flop: None where an operation among them has no rule.
    """

    phase: str
    module: str
    kind: str
    model_flop: int | None
    other_flop: int | None
    calls: int


@dataclass(frozen=True)
class StepCount:
    """FLOP of one step; a multiply-add is 2.

    forward_flop, backward_flop, recompute_flop: convolutions and matrix products (forward includes the loss, recompute
    is what activation checkpoints run again); None where an operation of the phase has no rule. at_least_flop: phase →
    FLOP of the operations that have one. optimizer_flop: all arithmetic of the optimizer's step; None without an
    optimizer, or if one of its operations has no rule. other_flop: all arithmetic of the other phases that is not a
    product; None if one of their operations has no rule. not_understood: operation → calls without a rule
    (`flopledger.register` gives one). operations: FLOP by phase, module and kind. attention: FLOP that other
    conventions count less than the dense one (`by_convention`). optimizer_model_flop: the matrix products in
    optimizer_flop, such as Muon's and Shampoo's, which no utilization includes; known even where an eigendecomposition,
    which is not a product, leaves optimizer_flop unknown.
    """

    forward_flop: int | None
    backward_flop: int | None
    recompute_flop: int | None
    optimizer_flop: int | None
    other_flop: int | None
    at_least_flop: Mapping[str, int] = field(default_factory=dict)
    not_understood: Mapping[str, int] = field(default_factory=dict)
    operations: tuple[OperationCost, ...] = ()
    notes: tuple[str, ...] = ()
    attention: AttentionFlop | None = None
    optimizer_model_flop: int | None = None

    def by_convention(self, attention: str) -> tuple[int | None, int | None]:
        """Return (forward, backward) FLOP with attention counted "dense" (as all other fields here), "causal" (pairs up
        to the diagonal where it is causal), "mask_exact" (the pairs that its mask keeps), "hardware" (those that
        torch's kernel for CPUs computes, which is what runs on fake tensors).

        None where it is not known; `attention.reasons` says why. Raises ValueError for another convention.
        docs/conventions.md says which tool uses which convention.
        """
        conventions = self.attention or AttentionFlop({}, {}, 0)
        forward, backward = self.forward_flop, self.backward_flop
        return conventions.flop(attention, "forward", forward), conventions.flop(attention, "backward", backward)

    @property
    def model_flop(self) -> int | None:
        """Forward and backward, without recomputation; None where one of them is not known."""
        if self.forward_flop is None or self.backward_flop is None:
            return None
        return self.forward_flop + self.backward_flop


def count(
    model: torch.nn.Module,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Optimizer | None = None,
    loss_of: Callable[[Any], Any] | None = None,
) -> StepCount:
    """Count one step: model(*inputs, **kwargs), its backward pass, and the optimizer's step where one is given.

    inputs: a tensor, or a tuple or list of arguments; their values do not matter. optimizer: an object, a class, or a
    function of the parameters. loss_of: function from the outputs to the tensors whose sum is the loss; None: all
    outputs. Each module counts in the mode (train, eval) that it is in. Raises ValueError if model is not a module,
    Unavailable where the step cannot be traced.

    >>> import torch, flopledger
    >>> step = flopledger.count(torch.nn.Linear(8, 4), torch.randn(2, 8))
    >>> step.forward_flop  # 2 samples × 8 × 4 multiply-adds, 2 FLOP each
    128
    >>> step.backward_flop  # the weight's gradient; the input needs none
    128
    """
    return count_of(step_trace(model, inputs, kwargs, optimizer, loss_of), optimizer is not None)


def count_of(trace: Trace, has_optimizer: bool = False) -> StepCount:
    """Count a traced step. has_optimizer: whether the trace includes the optimizer's step."""
    table: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for operation in trace.operations:
        phase = "forward" if operation.phase == "loss" else operation.phase
        cost = registry.cost(operation)
        unknown = registry.bucket_of(operation.name) == "not_understood"
        unread = unknown and not registry.is_iterative(operation.name)  # may be a product
        row = {"model": int(cost.model_flop), "other": int(cost.other_flop), "calls": 1}
        for total in (table[phase, operation.module, operation.kind], totals[phase]):
            total.update(row, unknown=unknown, unread=unread)
    forward, backward, recompute = (_known(totals[phase], "model") for phase in PHASES)
    optimizer = totals["optimizer"]
    missing = registry.unsupported(trace.operations)
    return StepCount(
        forward,
        backward,
        recompute,
        optimizer["model"] + optimizer["other"] if has_optimizer and not optimizer["unknown"] else None,
        _known(sum((totals[phase] for phase in PHASES), Counter()), "other"),
        {phase: totals[phase]["model"] for phase in PHASES},
        missing,
        tuple(
            OperationCost(*key, _known(row, "model"), _known(row, "other"), row["calls"]) for key, row in table.items()
        ),
        (*trace.notes, *map(_without_rule, missing)),
        attention_flop(trace.operations),
        optimizer["model"] if has_optimizer and not optimizer["unread"] else None,
    )


def _known(row: Counter[str], name: str) -> int | None:
    """Return the sum of this name; None if an operation in the row has no rule."""
    return None if row["unknown"] else row[name]


def _without_rule(name: str) -> str:
    """Return the note on an operation without a rule."""
    hint = f"one is given by {registry.registration(name)}"
    why = f" {registry.UNSUPPORTED[name]}: it" if name in registry.UNSUPPORTED else ""
    return f"{name}{why} has no rule; {hint}"
