"""What a cell is called: its model, batch and precision, and what else sets it apart from the run's other cells."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from cleaning.reconcile.view import View
from results.records.cell import Run


def model_name(run: Run) -> str:
    """The model, and which of several repeats it is."""
    return f"{run.model}{_repeat(run)}"


def shared_variant(views: Sequence[View]) -> str:
    """The parts of a variant that all cells have, in the order of the first."""
    variants = [_parts(view.variant) for view in views]
    return ", ".join(part for part in variants[0] if all(part in each for each in variants)) if variants else ""


def own_lines(view: View, shared: str) -> list[str]:
    """The lines of a cell's variant, without the parts that all cells share."""
    return variant_lines(_own(view, shared))


def cell_name(view: View, shared: str = "") -> str:
    """A cell in a few words, without the parts of its variant that all cells share."""
    run, variant = view.run, _own(view, shared)
    beside = f", {variant}" if variant else ""
    return f"{run.model} b{run.batch_size} {run.precision}{_repeat(run)}{beside}"


def _own(view: View, shared: str) -> str:
    return ", ".join(part for part in _parts(view.variant) if part not in _parts(shared))


@functools.lru_cache(1 << 10)
def _parts(variant: str) -> tuple[str, ...]:
    """A comma may be in a value: a part begins with a name."""
    return tuple(part for part in re.split(r", (?=\w+=)", variant) if part)


def _repeat(run: Run) -> str:
    return f" #{run.repeat + 1}" if run.repeat else ""


_NAMED = ("malloc",)
"""Parts whose values alone do not say of what they are."""


def variant_lines(variant: str) -> list[str]:
    """A variant without names where values say enough: layout=channels_last, compile=true → channels_last, compile."""
    lines = []
    for part in _parts(variant):
        name, _, value = part.partition("=")
        is_clear = value[:1].isalpha() and value != "false" and name not in _NAMED
        lines.append(name if value == "true" else value if is_clear else part)
    return lines
