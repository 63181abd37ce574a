"""What a cell is called: its model, batch and precision, and what else sets it apart from the run's other cells."""

from __future__ import annotations

from collections.abc import Sequence

from cleaning.reconcile import View
from results.records import Run


def model_name(run: Run) -> str:
    """The model, and which of several repeats it is."""
    return f"{run.model}{_repeat(run)}"


def variant_of(view: View) -> str:
    """What sets a cell apart beside model, batch and precision."""
    return next((row.variant for row in view.fractions if row.variant), "")


def shared_variant(views: Sequence[View]) -> str:
    """The variant of all cells, if they have the same."""
    variants = {variant_of(view) for view in views}
    return variants.pop() if len(variants) == 1 else ""


def cell_name(view: View, shared: str = "") -> str:
    """A cell in a few words, without the variant that all share."""
    run, variant = view.run, variant_of(view)
    beside = f", {variant}" if variant and variant != shared else ""
    return f"{run.model} b{run.batch_size} {run.precision}{_repeat(run)}{beside}"


def _repeat(run: Run) -> str:
    return f" #{run.repeat + 1}" if run.repeat else ""


def variant_lines(variant: str) -> list[str]:
    """A variant without names where values say enough: layout=channels_last, compile=true → channels_last, compile."""
    lines = []
    for part in filter(None, variant.split(", ")):
        name, _, value = part.partition("=")
        lines.append(name if value == "true" else value if value[:1].isalpha() and value != "false" else part)
    return lines
