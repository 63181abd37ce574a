"""Writes the answer of `runners.footprint`, the memory of a training step and the largest batch that fits.

`parts`, `to_csv` and `document` take a `FootprintAnswer`, and return a page, CSV and JSON. `timeline_csv` returns the
live bytes at each moment of the step. If a storage has no known size, sums that contain it are unknown, and lower
bounds are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.devices.memory import Memory
from analysis.footprint.device_memory import Reserved, Workspace
from analysis.footprint.largest_batch import BatchFit
from analysis.footprint.live_bytes import BEFORE, CATEGORIES, Footprint, LiveStorage, moment_at
from analysis.formula.requests import amount
from reports.shared.layout import Cell, Part, TableColumn, TextTable, csv_of, csv_text, strong
from reports.shared.numbers import percent
from results.records.counts import Operation

CATEGORY_TEXTS = {
    "weight": "weights",
    "buffer": "buffers",
    "gradient": "gradients",
    "optimizer_state": "optimizer state",
    "input": "inputs and targets",
    "activation": "activations",
    "cast": "casts of autocast",
    "temporary": "temporaries",
}

FIXED = ("weight", "buffer", "gradient", "optimizer_state")
"""Categories that do not grow with the batch."""

LEAST_SHARE = 0.001

GROWING = ("activation", "cast", "input")


_FIRST = 30
"""Width of the first column of each table, in letters."""


@dataclass(frozen=True)
class MemoryFit:
    """The largest batch in a device's memory. margin_ratio: share of the memory that is left free."""

    memory: Memory
    margin_ratio: float
    fit: BatchFit

    @property
    def least_batch(self) -> int:
        """The smallest batch that was tried."""
        return min(self.fit.needed)


@dataclass(frozen=True)
class FootprintAnswer:
    """The whole answer on a step's memory. minimal_bytes, lower_bound_bytes: the peak by the best order of operations
    found, and a proven bound."""

    model: str
    batch_size: int
    precision: str
    optimizer: str
    device: str
    accumulate: int
    layout: str
    operations: Sequence[Operation]
    live: Footprint
    reserved: Reserved
    workspaces: tuple[Workspace, ...] = ()
    fitted: MemoryFit | None = None
    minimal_bytes: int | None = None
    lower_bound_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def workspace_bytes(self) -> int:
        """The sum of all workspaces that the step needs."""
        return sum(workspace.nbytes for workspace in self.workspaces)

    @property
    def is_partial(self) -> bool:
        """Whether a storage has no known size: then each number of bytes is a lower bound, and the largest batch an
        upper one."""
        return bool(self.live.unknown)


def document(answer: FootprintAnswer, top: int) -> dict[str, Any]:
    """Return the answer as a JSON document; unknown is null.

    Where a storage has no known size, sums that contain it are null, and at_least has their lower bounds.
    """
    footprint, peak = answer.live, answer.live.peak_moment
    known = not answer.is_partial
    fit = answer.fitted.fit if answer.fitted else None
    return {
        "model": answer.model,
        "batch_size": answer.batch_size,
        "precision": answer.precision,
        "optimizer": answer.optimizer,
        "device": answer.device,
        "accumulate": answer.accumulate,
        "layout": answer.layout,
        "eager_peak_bytes": footprint.peak_bytes,
        "minimal_bytes": answer.minimal_bytes if known else None,
        "lower_bound_bytes": answer.lower_bound_bytes,
        "by_category": dict(footprint.by_category),
        "peak_at": {"operation": peak.operation, "module": peak.module, "phase": peak.phase, "index": peak.index},
        "largest_batch": fit.fits if fit and known else None,
        "fit": _fit(answer.fitted, known) if answer.fitted else None,
        "allocated_bytes": answer.reserved.allocated_bytes if known else None,
        "reserved_bytes": answer.reserved.reserved_bytes if known else None,
        "segments": answer.reserved.segments if known else None,
        "workspace_bytes": answer.workspace_bytes,
        "workspaces": [{"library": w.library, "bytes": w.nbytes, "source": w.source} for w in answer.workspaces],
        "operations": len(answer.operations),
        "largest": [
            {
                "bytes": storage.nbytes,
                "category": storage.category,
                "module": storage.module,
                "made_by": storage.maker.operation or None,
                "phase": storage.maker.phase or None,
            }
            for storage in footprint.held[:top]
        ],
        "unknown_storages": len(footprint.unknown),
        "at_least": None if known else _at_least(answer),
        "at_most_batch": fit.largest_batch if fit else None,
        "notes": list(answer.notes),
    }


def _at_least(answer: FootprintAnswer) -> dict[str, int]:
    """Return the bytes of storages of known size."""
    return {"eager_peak_bytes": answer.live.at_least_bytes, "allocated_bytes": answer.reserved.allocated_bytes}


def _fit(fitted: MemoryFit, known: bool) -> dict[str, Any]:
    """Return the largest batch that fits. known: whether all storages have a size; without it the needed bytes are
    lower bounds."""
    fit, memory = fitted.fit, fitted.memory
    needed = {str(batch): nbytes for batch, nbytes in fit.needed.items()}
    return {
        "memory": memory.name or None,
        "memory_bytes": memory.memory_bytes,
        "source": memory.source,
        "verification": memory.verification,
        "margin_ratio": fitted.margin_ratio,
        "available_bytes": fit.available_bytes,
        "predicted_batch": fit.predicted if known else None,
        "capped": fit.capped,
        "needed_bytes": needed if known else None,
        "at_least_needed_bytes": None if known else needed,
    }


def to_csv(answer: FootprintAnswer) -> str:
    """Return one row: the document's numbers, the nested ones in columns of their own."""
    whole = document(answer, 0) | {"fit": {}, "at_least": {}}
    row = {name: value for name, value in whole.items() if not isinstance(value, (dict, list))}
    row |= {f"{name}_bytes": value for name, value in whole["by_category"].items()}
    row |= {f"peak_{name}": value for name, value in whole["peak_at"].items()}
    row["memory_bytes"] = answer.fitted.memory.memory_bytes if answer.fitted else None
    row |= {f"at_least_{name}": value if answer.is_partial else None for name, value in _at_least(answer).items()}
    return csv_of([row])


def timeline_csv(answer: FootprintAnswer) -> str:
    """Return live bytes by category, a row for each moment: before the first operation (index -1), then while each
    runs."""
    footprint = answer.live
    head = ["index", "operation", "module", "phase", *(f"{name}_bytes" for name in CATEGORIES), "live_bytes"]
    rows: list[Sequence[Any]] = []
    for moment, total in enumerate(footprint.total_bytes):
        where = moment_at(answer.operations, moment + BEFORE)
        live = [footprint.timeline[name][moment] for name in CATEGORIES]
        rows.append([where.index, where.operation, where.module, where.phase, *live, total])
    return csv_text(head, rows)


# --- the table -------------------------------------------------------------------------------------------------------


def parts(answer: FootprintAnswer, top: int) -> list[Part]:
    """Return the page. top: how many of the largest tensors are listed."""
    title = [answer.model, f"batch {answer.batch_size}", answer.precision, f"optimizer {answer.optimizer}"]
    title += [f"{answer.accumulate} batches a step"] if answer.accumulate > 1 else []
    parts: list[Part] = [strong(", ".join([*title, f"as on {answer.device}"])), strong(meaning(answer))]
    if answer.fitted is not None:
        parts.append(fit_text(answer, answer.fitted))
    parts += ["", _filling(answer), "", _estimates(answer), ""]
    if top and answer.live.held:
        parts += [_largest(answer.live.held[:top]), ""]
    return [*parts, *(f"note: {note}" for note in answer.notes)]


def meaning(answer: FootprintAnswer) -> str:
    """Summarise the footprint in a sentence or two."""
    footprint, peak = answer.live, answer.live.peak_moment
    where = (
        f"in {peak.operation}{f' of {peak.module}' if peak.module else ''} ({peak.phase})"
        if peak.operation
        else "before its first operation"
    )
    peak_bytes = footprint.at_least_bytes
    if answer.is_partial:
        return f"The step needs at least {amount(peak_bytes, 'B')} of tensors: that much is known of {where}."
    shares = {name: nbytes / peak_bytes for name, nbytes in footprint.by_category.items()} if peak_bytes else {}
    growing, fixed = (sum(shares.get(name, 0.0) for name in names) for names in (GROWING, FIXED))
    start = f"The step needs {amount(peak_bytes, 'B')} of tensors at its peak, {where}."
    if growing >= fixed:
        return f"{start} {percent(growing)} of it are activations and inputs: a smaller batch and checkpoints lower it."
    return f"{start} {percent(fixed)} of it are weights, gradients and their like: a smaller batch lowers it little."


def _filling(answer: FootprintAnswer) -> TextTable:
    """Return the categories that fill the peak, largest first; without shares where a part of it is unknown."""
    footprint, partial = answer.live, answer.is_partial
    rows = []
    for name, nbytes in sorted(footprint.by_category.items(), key=lambda pair: -pair[1]):
        if nbytes:
            share = nbytes / footprint.at_least_bytes
            text = "" if partial else percent(share) if share >= LEAST_SHARE else "< 0.1 %"
            rows.append([f"  {CATEGORY_TEXTS[name]}", f"{nbytes:,}", amount(nbytes, "B"), text])
    head = "what is known there" if partial else "what fills the peak"
    last = TableColumn("" if partial else "share", right=True)
    return _bytes_table(
        TableColumn(head), TableColumn("bytes", right=True, rank=1), TableColumn("", right=True), last, rows=rows
    )


def _bytes_table(*columns: TableColumn, rows: Sequence[Sequence[Cell]]) -> TextTable:
    """Return a table of bytes; the three tables align their second columns where there is room."""
    first, *others = columns
    wide = [[f"{row[0]:<{_FIRST}}", *row[1:]] for row in rows]
    return TextTable([TableColumn(f"{first.name:<{_FIRST}}", right=False, wraps=True), *others], wide, rule=False)


def _estimates(answer: FootprintAnswer) -> TextTable:
    """Return the peak with the bytes that an allocator and libraries add."""
    peak_bytes, blocks = answer.live.at_least_bytes, answer.reserved
    rows: list[tuple[str, int | None, str]] = [
        ("live bytes at the peak", peak_bytes, "in the order of the program (eager)"),
        ("  minimal: reordered", answer.minimal_bytes, "in the best of a few orders"),
        ("  no order needs less than", answer.lower_bound_bytes, "proven"),
        ("allocated, in blocks", blocks.allocated_bytes, "blocks of the caching allocator: a bound"),
        ("reserved, in segments", blocks.reserved_bytes, f"its {blocks.segments} segments: a bound"),
    ]
    if answer.is_partial:
        rows = [
            ("live bytes, at least", peak_bytes, "in the order of the program (eager)"),
            ("  no order needs less than", answer.lower_bound_bytes, "proven"),
            ("allocated in blocks, at least", blocks.allocated_bytes, "blocks of the caching allocator"),
        ]
    rows += [(f"{w.library}'s workspaces", w.nbytes, w.source) for w in answer.workspaces]
    table_rows = [
        [f"  {label}", f"{nbytes:,}", amount(nbytes, "B"), note] for label, nbytes, note in rows if nbytes is not None
    ]
    note = TableColumn("", right=False, wraps=True, rank=1)
    exact = TableColumn("bytes", right=True, rank=2)
    return _bytes_table(TableColumn("the peak, and more"), exact, TableColumn("", right=True), note, rows=table_rows)


def _largest(held: Sequence[LiveStorage]) -> TextTable:
    rows = []
    for storage in held:
        origin = storage.maker.operation.removeprefix("aten.") or "before the step"
        origin += f" ({storage.maker.phase})" if storage.maker.phase else ""
        what = f"{CATEGORY_TEXTS[storage.category]}, {origin}"
        rows.append([f"  {storage.module or '(no module)'}", f"{storage.nbytes:,}", what])
    maker_column = TableColumn("made by", right=False, wraps=True, rank=1, least=20)
    return _bytes_table(TableColumn("largest at the peak"), TableColumn("bytes", right=True), maker_column, rows=rows)


def fit_text(answer: FootprintAnswer, fitted: MemoryFit) -> str:
    """Return the batch that fits, and how that is known."""
    fit, memory = fitted.fit, fitted.memory
    room = f"{amount(memory.memory_bytes, 'B')} {f'of {memory.name}' if memory.name else ''}".rstrip()
    doubt = ", not looked up" if memory.verification == "memory" else ""
    of = f"{room} ({memory.source}{doubt}), {100 * fitted.margin_ratio:g} % of it left free"
    least = fitted.least_batch
    if not fit.largest_batch:
        return f"Not even a batch of {least} fits into {of}: it needs {amount(fit.needed[least], 'B')}."
    if answer.is_partial:
        return (
            f"At most a batch of {fit.largest_batch:,} fits into {of}: it needs at least "
            f"{amount(fit.needed[fit.largest_batch], 'B')}, as sizes are unknown."
        )
    more = " with cuBLAS's workspaces" if answer.workspace_bytes else ""
    fits = f"No batch fits into {of} by segments"
    if fit.fits:
        what = "in segments" if answer.device == "cuda" else "alive"
        fits = f"Fits: {fit.fits:,} into {of}, {amount(fit.reserved_bytes, 'B')} {what}{more}"
    above = "the model takes no more" if fit.refused else "more were not looked for"
    if not fit.capped:
        above = f"{amount(fit.needed[fit.largest_batch + 1], 'B')} of {amount(fit.available_bytes, 'B')} for one more"
    return (
        f"{fits}. At most {fit.largest_batch:,} by live bytes: {amount(fit.needed[fit.largest_batch], 'B')}{more}; "
        f"{above}."
    )
