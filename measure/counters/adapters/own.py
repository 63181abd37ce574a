"""Our own count as a counter among the others: the operation table of this very model and input, by
`analysis.operators.registry`.

Model FLOP alone, convolutions and matrix products: 2 a multiply-add, taps on zero padding included, no bias, nothing an
element; what it leaves out is listed as ignored. It runs on fake tensors, so that it needs no memory and no time to
speak of; where those cannot (a size depends on data), on the real ones, and says so. Eval mode, like its peers: the
count of a training step is that of `measure.operations.tracer` on the step itself.
"""

from collections import Counter
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import attention_flop
from measure.counters.rows import rows
from measure.model.mixture import step_mixture
from measure.model.state_snapshot import evaluating
from measure.operations.model_trace import ON_VALUES, trace_any
from results.records.counts import FlopCount


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each kind of operation."""
    with evaluating(model):
        trace = trace_any(model, inputs, {}, train=None, loss_of=None)
    note = next((f"note: {note}" for note in trace.notes if note.startswith(ON_VALUES)), "")
    parts = step_mixture(model, trace.operations)
    counted: list[FlopCount] = []
    for phase in ("forward", "backward"):
        table = [operation for operation in trace.operations if operation.phase == phase]
        if not table:
            continue
        own: Counter[tuple[str, str]] = Counter()
        ignored: Counter[str] = Counter()
        for operation in table:
            flop = registry.model_flop(operation)
            if flop:
                own[operation.kind, "flop"] += flop
            elif registry.bucket_of(operation.name) == "counted":
                ignored[operation.name] += 1
        not_understood = registry.not_understood(table)
        blank = FlopCount(
            counter="flopledger",
            workload=workload,
            batch_size=batch_size,
            phase=phase,
            native_unit="flop",
            ignored=dict(ignored),
            not_understood=not_understood,
            reason=note,
            parameters=None if counted else sum(parameter.numel() for parameter in model.parameters()),
            attention={} if not_understood else attention_flop(table).as_row(phase, own.total()),
            mixture=parts.as_row() if parts and not counted else {},
        )
        counted += rows(blank, own)
    return counted
