"""Steps of several ranks, predicted beside measured, as a table a person reads."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.project.parallelism import PredictedStep
from reports.shared import Column, Part, TextTable, digits, page, percent, strong

_UNKNOWN = "–"

HEADING = "Steps on several ranks, predicted and measured, in ms"

MEANING = (
    "predicted: kernels at the rank's own ceiling, collectives as long as alone, hidden by runners.project's rules; "
    "no launch, no waiting, no operation but products. share: predicted of measured. computes, collectives and exposed "
    "are predicted / measured; measured are shares of recorded steps."
)


def swept_text(rows: Sequence[PredictedStep], width: int, colour: bool) -> str:
    """The table, what it means, and why a row has no prediction."""
    columns = (
        Column("model", right=False, wraps=True, least=14),
        Column("batch", right=True),
        Column("plan", right=False),
        Column("predicted", right=True),
        Column("measured", right=True),
        Column("share", right=True),
        Column("computes", right=True, rank=1),
        Column("collectives", right=True, rank=1),
        Column("exposed", right=True),
        Column("bubble", right=True, rank=2),
    )
    parts: list[Part] = [strong(HEADING), "", TextTable(columns, list(map(_cells, rows))), "", MEANING]
    sources = sorted({row.links for row in rows if row.links})
    if sources:
        parts.append(f"Times of collectives: {'; '.join(sources)}.")
    left_out = sorted({kind for row in rows for kind in row.left_out.split(", ") if kind})
    if left_out:
        parts.append(f"Not in it, since nothing times it alone: {', '.join(left_out)}.")
    parts += dict.fromkeys(f"{row.parallel}: {row.reason}" for row in rows if row.reason)
    return page(parts, width, colour)


def _cells(row: PredictedStep) -> list[str]:
    return [
        row.model,
        str(row.batch_size),
        row.parallel,
        _ms(row.step_s),
        _ms(row.measured_step_s),
        _UNKNOWN if row.step_ratio is None else percent(row.step_ratio),
        f"{_ms(row.compute_s)} / {_ms(row.measured_compute_s)}",
        f"{_ms(row.collective_s)} / {_ms(row.measured_collective_s)}",
        f"{_ms(row.exposed_s)} / {_ms(row.measured_exposed_s)}",
        _ms(row.bubble_s),
    ]


def _ms(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else digits(seconds * 1e3)
