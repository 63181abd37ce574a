"""ptflops' other backend (`aten`), as its users run it: a dispatch mode on real tensors, eval mode, gradients on.

It prints multiply-adds of the whole batch, unlike its default backend. The number is nearly pure: convolutions and
addmm add 1 for each bias element to their multiply-adds, and nothing else is counted: no normalisation, activation,
pooling or addition, and no baddbmm, fused attention or recurrent kernel either. Its own rules do all counting; this
adapter listens to each, asks it again without the bias to tell the two units apart, and checks that they add up to the
print. "aten.convolution" holds multiply-adds (`mac`), "aten.convolution elementwise" bias additions (`flop`).

Calls without a rule count as zero there: ignored if they do no arithmetic (views,
copies, by `analysis/operators/registry.py`), else not understood. ptflops leaves hooks on the model; they are taken off
again. Forward only.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from ptflops.aten_ops import ATEN_OPS_MAPPING

from analysis.operators.registry import bucket_of
from measure.counters.adapters.ptflops import ask
from measure.counters.rows import UncountedCalls, rows
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

aten = torch.ops.aten

BIAS_AT = {aten.addmm: 0, aten.convolution: 2, aten._convolution: 2}
"""Operator → where its bias is among its arguments."""

Rule = Callable[[Any, Any], int]


def _listener(operator: Any, rule: Rule, own: Counter[tuple[str, str]]) -> Rule:
    """ptflops' rule for one operator, listened to."""

    def listen(arguments: Any, outputs: Any) -> int:
        counted = int(rule(arguments, outputs))
        bare = list(arguments)
        if operator in BIAS_AT:
            bare[BIAS_AT[operator]] = None
        mac = int(rule(bare, outputs))
        own[str(operator), "mac"] += mac
        if counted > mac:
            own[f"{operator} elementwise", "flop"] += counted - mac
        return counted

    return listen


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each operator.

    Raises Inconsistent if ptflops gave up, or if its rules do not add up to its print.
    """
    own: Counter[tuple[str, str]] = Counter()
    seen = UncountedCalls(lambda: False)
    hooks = {operator: _listener(operator, rule, own) for operator, rule in ATEN_OPS_MAPPING.items()}
    with evaluating(model), seen:
        printed, parameters = ask(model, inputs, "aten", hooks)
    if printed != (heard := own.total()):
        raise Inconsistent(f"ptflops printed {printed}, its rules gave {heard}")
    others = {name: calls for name, calls in seen.calls.items() if name not in {str(operator) for operator in hooks}}
    blank = FlopCount(
        counter="ptflops_aten",
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="mac",
        ignored={name: calls for name, calls in others.items() if bucket_of(name) == "ignored"},
        not_understood={name: calls for name, calls in others.items() if bucket_of(name) != "ignored"},
        parameters=parameters,
    )
    return rows(blank, own)
