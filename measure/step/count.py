"""How many FLOP does a step of this model need? Exact, by phase, module and kind; from Python in one call.

`python -m runners.count` asks the same, and every other counter beside it. Not claimed: what a GPU runs differently
(`docs/limits.md`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import AttentionFlop, attention_flop
from measure.model.mixture import MixtureFlop, step_mixture
from measure.operations.tracer import Trace
from measure.step.register import Optimizer, step_trace

PHASES = ("forward", "backward", "recompute")


@dataclass(frozen=True)
class OperationCost:
    """FLOP of one kind of operation in one module itself (not its children), in one phase. calls: how many.

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

    forward_flop, backward_flop, recompute_flop: convolutions and matrix products (forward includes the loss,
    recompute is what activation checkpoints run again); None where an operation of the phase has no rule: then
    at_least_flop, phase → FLOP, has what the others add up to. optimizer_flop: all arithmetic of the optimizer's step;
    None without an optimizer. other_flop: all arithmetic of the other phases that is no product. not_understood:
    operation → calls without a rule (`flopledger.register` gives one). operations: the same in detail. attention: what
    other conventions than the dense one count less (`by_convention`). optimizer_model_flop: of optimizer_flop the
    matrix products, such as Muon's and Shampoo's; they are in no utilization, and known beside an eigendecomposition,
    which is none. mixture: router, experts, shared experts and padding
    of a mixture of experts; None for a model without.
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
    mixture: MixtureFlop | None = None

    def by_convention(self, attention: str) -> tuple[int | None, int | None]:
        """(forward, backward) FLOP with attention counted "dense" (as all other fields here), "causal" (pairs up to
        the diagonal where it is causal), "mask_exact" (the pairs that its mask keeps), "hardware" (those that torch's
        kernel for CPUs computes, which is what runs on fake tensors).

        None where it is not known; `attention.reasons` says why. Raises ValueError for another word. Who counts how:
        docs/conventions.md.
        """
        found = self.attention or AttentionFlop({}, {}, 0)
        forward, backward = self.forward_flop, self.backward_flop
        return found.flop(attention, "forward", forward), found.flop(attention, "backward", backward)

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

    inputs: a tensor, or a tuple or list of arguments; their values do not matter. loss_of: the outputs → what the loss
    is made of; None: all outputs. Each module counts in the mode (train, eval) that it is in. Raises ValueError for
    what is no model, Unavailable where the step cannot be traced.

    >>> import torch, flopledger
    >>> found = flopledger.count(torch.nn.Linear(8, 4), torch.randn(2, 8))
    >>> found.forward_flop  # 2 samples × 8 × 4 multiply-adds, 2 FLOP each
    128
    >>> found.backward_flop  # the weight's gradient; the input asks for none
    128
    """
    return count_of(step_trace(model, inputs, kwargs, optimizer, loss_of), model, optimizer is not None)


def count_of(trace: Trace, model: torch.nn.Module, has_optimizer: bool = False) -> StepCount:
    """Counts a step that was traced. has_optimizer: whether the optimizer's step is in it."""
    totals: Counter[str] = Counter()
    table: dict[tuple[str, str, str], list[int]] = {}
    unknown: Counter[str] = Counter()
    unread: Counter[str] = Counter()  # of them those that may be products
    unknown_rows: set[tuple[str, str, str]] = set()
    other: Counter[str] = Counter()
    for operation in trace.operations:
        phase = "forward" if operation.phase == "loss" else operation.phase
        cost = registry.cost(operation)
        totals[phase] += int(cost.model_flop)
        other[phase] += int(cost.other_flop)
        key = phase, operation.module, operation.kind
        if registry.bucket_of(operation.name) == "not_understood":
            unknown[phase] += 1
            unread[phase] += not registry.is_iterative(operation.name)
            unknown_rows.add(key)
        row = table.setdefault(key, [0, 0, 0])
        for place, value in enumerate((int(cost.model_flop), int(cost.other_flop), 1)):
            row[place] += value
    forward, backward, recompute = (None if unknown[phase] else totals[phase] for phase in PHASES)
    missing = registry.not_understood(trace.operations)
    known_optimizer = has_optimizer and not unknown["optimizer"]
    return StepCount(
        forward,
        backward,
        recompute,
        totals["optimizer"] + other["optimizer"] if known_optimizer else None,
        None if any(unknown[phase] for phase in PHASES) else sum(other[phase] for phase in PHASES),
        {phase: totals[phase] for phase in PHASES},
        missing,
        tuple(
            OperationCost(
                *key, None if key in unknown_rows else row[0], None if key in unknown_rows else row[1], row[2]
            )
            for key, row in table.items()
        ),
        (*trace.notes, *map(_without_rule, missing)),
        attention_flop(trace.operations),
        totals["optimizer"] if has_optimizer and not unread["optimizer"] else None,
        step_mixture(model, trace.operations),
    )


def _without_rule(name: str) -> str:
    """What is said of an operation without a rule."""
    given = f"one is given by {registry.registration(name)}"
    why = f" {registry.UNSUPPORTED[name]}: it" if name in registry.UNSUPPORTED else ""
    return f"{name}{why} has no rule; {given}"
