"""ptflops' other backend (`aten`), as its users run it: a dispatch mode on real tensors, eval mode, gradients on.

It prints multiply-adds of the whole batch, unlike its default backend. The number is nearly pure: convolutions and
addmm add 1 for each bias element to their multiply-adds, and nothing else is counted: no normalisation, activation,
pooling or addition, and no baddbmm, fused attention or recurrent kernel either. Its own rules do all counting; this
adapter listens to each, asks it again without the bias to tell the two units apart, and checks that they add up to the
print. "aten.convolution" holds multiply-adds (`mac`), "aten.convolution elementwise" bias additions (`flop`).

Calls without a rule are those that ptflops itself says it treats as zero: ignored if they do no arithmetic (views,
copies, by `analysis/operators/registry.py`), else not understood. ptflops leaves hooks on the model; they are taken off
again. Forward only.
"""

import contextlib
import io
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from ptflops.aten_ops import ATEN_OPS_MAPPING

from analysis.operators import registry
from measure.counters.adapters.ptflops import ask
from measure.counters.rows import rows
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

aten = torch.ops.aten

BIAS_AT = {aten.addmm: 0, aten.convolution: 2, aten._convolution: 2}
"""Operator → where its bias is among its arguments."""

Rule = Callable[[Any, Any], int]


class DispatchListener(io.TextIOBase):
    """Adds up what ptflops' rules count, and the calls that it announces, as text, to have no rule for."""

    def __init__(self) -> None:
        self.own: Counter[tuple[str, str]] = Counter()
        self.ignored: Counter[str] = Counter()
        self.not_understood: Counter[str] = Counter()

    def write(self, text: str) -> int:
        """ptflops' verbose output: "Warning: aten.relu_ operation is treated as a zero-op"."""
        if text.endswith("treated as a zero-op"):
            name = text.split()[1]
            (self.ignored if registry.bucket_of(name) == "ignored" else self.not_understood)[name] += 1
        return len(text)

    def to(self, operator: Any, rule: Rule) -> Rule:
        """ptflops' rule for one operator, listened to."""

        def listen(arguments: Any, outputs: Any) -> int:
            counted = int(rule(arguments, outputs))
            bare = list(arguments)
            if operator in BIAS_AT:
                bare[BIAS_AT[operator]] = None
            mac = int(rule(bare, outputs))
            self.own[str(operator), "mac"] += mac
            if counted > mac:
                self.own[f"{operator} elementwise", "flop"] += counted - mac
            return counted

        return listen


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each operator.

    Raises Inconsistent if ptflops gave up, or if its rules do not add up to its print.
    """
    with evaluating(model):
        listener = DispatchListener()
        hooks = {operator: listener.to(operator, rule) for operator, rule in ATEN_OPS_MAPPING.items()}
        with contextlib.redirect_stderr(io.StringIO()):
            printed, parameters = ask(model, inputs, "aten", hooks, ost=listener, verbose=True)
    if printed != (heard := listener.own.total()):
        raise Inconsistent(f"ptflops printed {printed}, its rules gave {heard}")
    blank = FlopCount(
        counter="ptflops_aten",
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="mac",
        ignored=dict(listener.ignored),
        not_understood=dict(listener.not_understood),
        parameters=parameters,
    )
    return rows(blank, listener.own)
