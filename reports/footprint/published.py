"""The section of docs/footprint.md that holds our prediction against what others measured on GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median

from analysis.footprint.step import (
    ALLOCATED,
    PASSES,
    PROCESS,
    REQUESTED,
    RESERVED,
    RISEN,
    TENSORS,
    Published,
    WorkspaceObservation,
    allowance_bytes,
    as_allowed,
    observations,
)
from analysis.formula.algebra import amount
from reports.footprint.published_trainings import trainings
from reports.shared import markdown, markdown_table
from results.records import FootprintPrediction

WORDS: Mapping[str, str] = {
    TENSORS: "tensors (all that was asked for but libraries' workspaces)",
    REQUESTED: "requested (all that was asked for)",
    ALLOCATED: "allocated (`max_memory_allocated`)",
    RISEN: "risen (allocated, above what was there as the step began)",
    RESERVED: "reserved (`max_memory_reserved`)",
    PROCESS: "the process, as the driver says",
}

WORDS_OF_PASSES: Mapping[str, str] = {
    "forward": "forward",
    "input": "gradient of the input",
    "weight": "gradient of the weights",
}


def section(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> str:
    """The whole section. Raises KeyError for a row without a prediction."""
    return markdown(
        "footprint_published",
        summary=_summary(rows, predicted),
        table=_table(rows, predicted),
        trainings="\n".join(trainings(rows, predicted)),
        assumptions=_assumptions(rows),
        workspaces=workspaces(observations()),
    )


def error(row: Published, predicted: FootprintPrediction) -> float:
    """Predicted ÷ measured − 1."""
    return predicted.predicted_bytes / row.measured_bytes - 1


def without(row: Published, predicted: FootprintPrediction) -> float:
    """The same without the allowance for cuDNN."""
    return predicted.without_bytes / row.measured_bytes - 1


def _summary(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> str:
    lines = []
    for quantity, words in WORDS.items():
        mine = [row for row in rows if row.quantity == quantity]
        if mine:
            spreads = (_spread([of(row, predicted[row.name]) for row in mine]) for of in (error, without))
            lines.append((words, str(len(mine)), *chain.from_iterable(spreads)))
    header = ("of", "rows", "error: least, median, most", "within 5 %", "without the allowance", "within 5 %")
    return markdown_table(header, lines, "-r-r-r")


def _spread(errors: Sequence[float]) -> tuple[str, str]:
    """Least, median, most; and how many are within 5 %."""
    spread = (min(errors), median(errors), max(errors))
    return ", ".join(map(_signed, spread)), str(sum(abs(value) <= 0.05 for value in errors))


def _table(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> str:
    marks = _marks(rows)
    lines = []
    for row in rows:
        found = predicted[row.name]
        cells = (
            row.name.partition(",")[0],
            row.precision + (" (bfloat16 model)" if row.model.endswith("_bf16") else ""),
            row.optimizer,
            row.torch or "–",
            row.quantity + (", after forward" if row.moment != "step" else ""),
            amount(row.measured_bytes, "B"),
            amount(found.predicted_bytes, "B"),
            _signed(error(row, found)),
            _signed(without(row, found)) if row.cudnn else "",
            marks[row.source, row.assumed],
        )
        lines.append(cells)
    return markdown_table(
        ("step", "precision", "optimizer", "torch", "of", "measured", "predicted", "error", "without", "source"),
        lines,
        "-----rrrr-",
    )


def workspaces(rows: Sequence[WorkspaceObservation]) -> str:
    """A line for each history, kind of window and pass."""
    lines = []
    groups: dict[tuple[str, str, str], list[WorkspaceObservation]] = {}
    for row in rows:
        groups.setdefault((_history(row), _window(row), row.which), []).append(row)
    for (history, window, which), found in sorted(groups.items(), key=_order):
        largest = max(found, key=lambda row: row.workspace_bytes)
        calls = (sum(row.calls for row in found), sum(row.calls for row in found if as_allowed(row)))
        sizes = (largest.workspace_bytes, allowance_bytes(largest.sizes, which))
        amounts = (amount(size, "B") for size in sizes)
        lines.append((history, window, WORDS_OF_PASSES[which], *map(str, calls), *amounts))
    header = (
        "history", "windows", "pass", "calls", "as the allowance", "workspace, of the largest", "allowance",
    )  # fmt: skip
    return markdown_table(header, lines, "---rrrr")


def _history(row: WorkspaceObservation) -> str:
    return f"{row.precision}, {row.gpu or 'a GPU without a name'}"


def _window(row: WorkspaceObservation) -> str:
    return f"{row.kernel_height} × {row.kernel_width}{f', stride {row.stride}' if row.stride > 1 else ''}"


def _order(group: tuple[tuple[str, str, str], list[WorkspaceObservation]]) -> tuple[str, bool, str, int]:
    (history, window, which), rows = group
    return history, not rows[0].sizes.winograd, window, PASSES.index(which)


def _assumptions(rows: Sequence[Published]) -> str:
    lines = []
    for (source, assumed), mark in _marks(rows).items():
        gpus = dict.fromkeys(row.gpu for row in rows if (row.source, row.assumed) == (source, assumed) and row.gpu)
        device = f" ({', '.join(gpus)})" if gpus else ""
        lines.append(f"* {mark}: <{source}>{device}: {assumed}.")
    return "\n".join(lines)


def _marks(rows: Sequence[Published]) -> dict[tuple[str, str], str]:
    """(source, what is assumed) → its letter."""
    letters = dict.fromkeys((row.source, row.assumed) for row in rows)
    return {each: chr(ord("a") + place) for place, each in enumerate(letters)}


def _signed(ratio: float) -> str:
    sign = "+" if ratio > 0 else "−"
    return f"{sign if round(ratio, 4) else ''}{abs(100 * ratio):.2f} %"
