"""What `benchmarks.pages.footprint --published` asks of a worker: our prediction of a number that others measured.

A task that `launch.Worker` calls by name. torch is imported inside.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from analysis.footprint.step import MATERIALIZED, Published, as_measured, predicted_bytes
from results.records import FootprintPrediction
from runners.footprint.step import StepOptions, trace_batch


def predict(row: Published) -> FootprintPrediction:
    """Our prediction of one published number. Raises what the step raises."""
    from analysis.footprint.step import allowance, footprint

    asked = StepOptions(
        row.model, row.precision, row.optimizer, accumulate=row.accumulate, hyper=dict(row.hyper or {}), loop=row.loop
    )  # fmt: skip
    with _attention(row.attention):
        step = trace_batch(asked, row.batch_size)
    found = footprint(step.operations, step.storages)
    cublas = allowance(step.operations, "cuda", row.capability) if row.capability else ()
    beside = [*(each.nbytes for each in cublas), *filter(None, (row.beside_bytes,))]
    storages = as_measured(step.operations, found.ledger, row.copies, row.late_zero, row.kept, beside)
    return FootprintPrediction(
        name=row.name,
        predicted_bytes=predicted_bytes(step.operations, storages, row),
        without_bytes=predicted_bytes(step.operations, storages, replace(row, cudnn=False)),
        live_bytes=found.at_least_bytes,
        predicted_at=found.peak_at.operation,
        predicted_phase=found.peak_at.phase,
    )


@contextlib.contextmanager
def _attention(kind: str) -> Iterator[None]:
    """Attention that keeps its matrix of weights, where it is asked for."""
    if kind != MATERIALIZED:
        yield
        return
    from torch.nn import functional

    fused = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _materialized
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = fused


def _materialized(query: Any, key: Any, value: Any, *_more: Any, **_named: Any) -> Any:
    """Attention without mask and dropout, in the order in which models wrote it before torch 2.0."""
    return ((query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)).softmax(-1) @ value
