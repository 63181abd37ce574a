"""docs/footprint.md: how a footprint is counted, and how far it is from real allocators, by rows of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from analysis.formula.algebra import amount
from reports.shared import digits, markdown, markdown_table
from results.records import FootprintCheck

GOAL_TENSORS, GOAL_ALL = 0.01, 0.05

SUMMARY = (
    "precision", "steps", "of tensors: least, median, most", "of all: least, median, most", "MemTracker, of all",
)  # fmt: skip
STEPS = (
    "model", "batch", "precision", "predicted", "measured", "error", "of tensors", "kernels' own", "peak measured in",
    "MemTracker",
)  # fmt: skip


def page(
    rows: Sequence[FootprintCheck],
    machine: Mapping[str, str],
    source: str,
    published: str = "",
    others: tuple[str, Sequence[FootprintCheck]] = ("", ()),
) -> str:
    """The whole document. published: the section on others' measurements. others: where from, and rows of
    models beside the thirteen."""
    return markdown(
        "footprint",
        source=source,
        machine=", ".join(f"{name} {value}" for name, value in machine.items() if value),
        summary=summary(rows),
        table=table(rows),
        others=other_models(*others) if others[1] else "",
        published=published,
    )


def other_models(source: str, rows: Sequence[FootprintCheck]) -> str:
    """The section of models beside the thirteen."""
    beyond = [row for row in rows if abs(error(row) or 0.0) > GOAL_ALL]
    own = ", what kernels took for themselves on this CPU" if all(_by_kernels(row) for row in beyond) else ""
    unknown = [f"{row.model} in {row.precision} has {row.unknown}" for row in rows if row.unknown]
    return markdown(
        "footprint_other_models",
        source=source,
        batches=", ".join(map(str, sorted({row.batch_size for row in rows}))),
        optimizers=", ".join(sorted({row.optimizer for row in rows})),
        summary=summary(rows),
        goal=f"{100 * GOAL_ALL:g}",
        own=own,
        beyond=", ".join(f"{row.model} in {row.precision} ({signed(error(row))})" for row in beyond),
        unknown=", ".join(unknown),
        table=table(rows),
    )


def _by_kernels(row: FootprintCheck) -> bool:
    """Whether tensors are within their goal, so that what is missing is kernels' own."""
    return abs(tensors_error(row) or 0.0) <= GOAL_TENSORS


def summary(rows: Sequence[FootprintCheck]) -> str:
    """Errors by precision: least, median, most."""
    cells = []
    for precision in dict.fromkeys(row.precision for row in rows):
        mine = [row for row in rows if row.precision == precision]
        spreads = (_spread(mine, of) for of in (tensors_error, error, peer_error))
        cells.append((precision, str(len(mine)), *spreads))
    within = [row for row in rows if abs(tensors_error(row) or 0.0) <= GOAL_TENSORS]
    total = [row for row in rows if abs(error(row) or 0.0) <= GOAL_ALL]
    tensors = f"Tensors within {100 * GOAL_TENSORS:g} %: {len(within)} of {len(rows)} steps."
    everything = f"All within {100 * GOAL_ALL:g} %, with no allowance for kernels: {len(total)} of {len(rows)}."
    return f"{markdown_table(SUMMARY, cells, '-r---')}\n\n{tensors} {everything}{unmeasured(rows)}"


def unmeasured(rows: Sequence[FootprintCheck]) -> str:
    """Which models have no row in one of the precisions, batch by batch, as a sentence; empty where each has them."""
    there = {(row.batch_size, row.model, row.precision) for row in rows}
    models, precisions = {model for _, model, _ in there}, {precision for *_, precision in there}
    missing = []
    for batch in sorted({batch for batch, *_ in there}):
        gaps = [model for model in sorted(models) if any((batch, model, each) not in there for each in precisions)]
        missing += [f"batch {batch} of {', '.join(gaps)}"] if gaps else []
    return f" Not measured in every precision: {'; '.join(missing)}." if missing else ""


def table(rows: Sequence[FootprintCheck]) -> str:
    """A row a step."""
    cells = [
        (
            row.model,
            str(row.batch_size),
            row.precision,
            amount(row.predicted_bytes, "B"),
            _amount(row.measured_bytes),
            signed(error(row)),
            signed(tensors_error(row)),
            _amount(row.own_bytes),
            f"`{row.measured_at.removeprefix('aten.') or '–'}`",
            signed(peer_error(row)) if row.tracked_bytes is not None else "fails",
        )
        for row in sorted(rows, key=lambda row: (row.precision, row.batch_size, row.model))
    ]
    return markdown_table(STEPS, cells, "-r-rrrrr-r")


def error(row: FootprintCheck) -> float | None:
    """Of the prediction against all that was allocated."""
    return row.predicted_bytes / row.measured_bytes - 1 if row.measured_bytes else None


def tensors_error(row: FootprintCheck) -> float | None:
    """Of the prediction against tensors alone."""
    return row.predicted_bytes / row.tensors_bytes - 1 if row.tensors_bytes else None


def peer_error(row: FootprintCheck) -> float | None:
    """Of MemTracker against all that was allocated."""
    return row.tracked_bytes / row.measured_bytes - 1 if row.tracked_bytes and row.measured_bytes else None


def signed(ratio: float | None) -> str:
    """A ratio in percent with its sign; what is less than a thousandth of a percent is 0."""
    if ratio is None:
        return "–"
    if abs(ratio) < 5e-6:
        return "0"
    return f"{'+' if ratio > 0 else '−'}{digits(100 * abs(ratio), 2)} %"


def _spread(rows: Iterable[FootprintCheck], of: Callable[[FootprintCheck], float | None]) -> str:
    found = sorted(value for row in rows if (value := of(row)) is not None)
    if not found:
        return "–"
    return ", ".join(signed(value) for value in (found[0], median(found), found[-1]))


def _amount(nbytes: int | None) -> str:
    return "–" if nbytes is None else amount(nbytes, "B")
