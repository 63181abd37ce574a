"""Our own count as a counter among the others: the operation table of this very model and input, by
`analysis.operators.registry`.

Model FLOP alone, convolutions and matrix products: 2 a multiply-add, taps on zero padding included, no bias, nothing an
element; what it leaves out is listed as ignored. It runs on fake tensors, so that it needs no memory and no time to
speak of; where those cannot (a size depends on data), on the real ones, and says so. Eval mode, like its peers: the
count of a training step is that of `measure.operations.tracer` on the step itself.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import attention_flop
from measure.counters.harness.rows import rows
from measure.model.mixture import step_mixture
from measure.model.state_snapshot import evaluating
from measure.operations.model_trace import ON_VALUES, trace_any
from results.records.counts import FlopCount, Operation

NAME = "flopledger"


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each kind of operation."""
    with evaluating(model):
        trace = trace_any(model, inputs, {}, train=None, loss_of=None)
    note = next((f"note: {note}" for note in trace.notes if note.startswith(ON_VALUES)), "")
    found = []
    for phase in ("forward", "backward"):
        table = [operation for operation in trace.operations if operation.phase == phase]
        if table:
            found += _phase(table, phase, note, workload, batch_size)
    if not found:
        return []
    parts = step_mixture(model, trace.operations)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    first = dataclasses.replace(found[0], parameters=parameters, mixture=parts.as_row() if parts else {})
    return [first, *found[1:]]


def _phase(table: Sequence[Operation], phase: str, note: str, workload: str, batch_size: int) -> list[FlopCount]:
    """The rows of one pass."""
    own: Counter[tuple[str, str]] = Counter()
    ignored: Counter[str] = Counter()
    for operation in table:
        flop = registry.model_flop(operation)
        if flop:
            own[operation.kind, "flop"] += flop
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
    found = rows(blank, own)
    said = attention_flop(table).as_row(phase, found[0].flop) if not blank.not_understood else {}
    return [dataclasses.replace(found[0], attention=said), *found[1:]]
