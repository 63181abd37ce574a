"""Our own count as a counter among the others: the operation table of this very model and input, by
`analysis.operators.registry`.

Model FLOP alone, convolutions and matrix products: 2 a multiply-add, taps on zero padding included, no bias, nothing an
element; what it leaves out is listed as ignored. It runs on fake tensors, so that it needs no memory and no time to
speak of; where those cannot (a size depends on data), on the real ones, and says so. Eval mode, like its peers: the
count of a training step is that of `measure.operations.tracer` on the step itself.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import attention_flop
from measure.counters.harness.rows import rows, spread
from measure.fake.mode import NOT_ON_FAKE
from measure.model.mixture import step_mixture
from measure.model.run import evaluating, summed
from measure.operations.model_trace import trace_model
from measure.operations.tracer import Trace, trace_step
from results.errors import one_line
from results.library_words import plain_words
from results.records.counts import FlopCount
from results.records.operations import Operation

NAME = "flopledger"


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each kind of operation, by module."""
    with evaluating(model):
        trace, note = _trace(model, inputs)
    found = []
    for phase in ("forward", "backward"):
        table = [operation for operation in trace.operations if operation.phase == phase]
        if table:
            found += _phase(table, phase, note, workload, batch_size)
    if not found:
        return []
    parts = step_mixture(model, trace.operations)
    first = dataclasses.replace(found[0], parameters=_parameters(model), mixture=parts.as_row() if parts else {})
    return [first, *found[1:]]


def _parameters(model: torch.nn.Module) -> int:
    """Elements of all parameters, trained or not; one that several modules share counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _phase(table: Sequence[Operation], phase: str, note: str, workload: str, batch_size: int) -> list[FlopCount]:
    """The rows of one pass."""
    own: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    ignored: Counter[str] = Counter()
    for operation in table:
        flop = registry.model_flop(operation)
        if flop:
            own[operation.module][operation.kind, "flop"] += flop
        elif registry.bucket_of(operation.name) == "counted":
            ignored[operation.name] += 1
    blank = FlopCount(
        counter=NAME,
        workload=workload,
        batch_size=batch_size,
        phase=phase,
        native_unit="flop",
        ignored=dict(ignored),
        not_understood=registry.not_understood(table),
        reason=note,
    )
    found = rows(blank, spread(own))
    said = attention_flop(table).as_row(phase, found[0].flop) if not blank.not_understood else {}
    return [dataclasses.replace(found[0], attention=said), *found[1:]]


def _trace(model: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Trace, str]:
    """The table of one pass forward and back, and what must be said of it."""
    try:
        return trace_model(model, inputs, {}, train=None, grad_inputs=None, loss_of=None), ""
    except NOT_ON_FAKE as fault:
        reason = one_line(plain_words(str(fault)), 200)
    trace = trace_step(_step(model, inputs), model=model, inputs=inputs, steps_before=0)
    return trace, f"note: counted on real tensors: {reason}"


def _step(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Callable[[Callable[[str], None]], None]:
    def step(mark: Callable[[str], None]) -> None:
        mark("forward")
        outputs = model(*inputs)
        mark("loss")
        total = summed(outputs)
        if total is not None:
            mark("backward")
            total.backward()
        mark("end")

    return step
