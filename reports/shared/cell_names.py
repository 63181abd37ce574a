"""What a cell is called, and which cells of one device and precision are divided by different measured ceilings.

A cell is named by its model, batch and precision, and what else sets it apart from the run's other cells.

A ceiling is measured in each session of a run, and on a shared machine it moves. Ratios over two of them do not
compare: a page says so, marks them in its tables and draws them with marks of their own. Cells over a datasheet's or
the user's peak are not concerned.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cleaning.reconcile.view import View
from reports.shared.numbers import si
from results.records.answers import Utilization
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


MARK = " †"
"""Beside a utilization that is divided by another ceiling than most cells of its device and precision."""


def ceiling_name(denominator: str, peak_flop_per_s: float | None, source: str) -> str:
    """Which measured ceiling a ratio is divided by; "" for any other denominator, and for no peak.

    A ceiling of one unit is known by its value. One of several units depends on how much of a cell runs on each: it is
    known by its sources.
    """
    if denominator != "ceiling" or peak_flop_per_s is None or peak_flop_per_s != peak_flop_per_s:
        return ""
    return source if "; " in source else f"{peak_flop_per_s:.9g}"


def ranks(names: Sequence[str]) -> dict[str, int]:
    """Ceiling → its rank among those of one device and precision: 0 for that of most cells; "" is left out."""
    return {name: rank for rank, (name, _) in enumerate(Counter(filter(None, names)).most_common())}


def other_ceilings(views: Iterable[View]) -> frozenset[str]:
    """Ids of the cells whose headline is over another ceiling than most of its device and precision."""
    return frozenset(
        row.cell_id
        for rows in _by_device(views).values()
        for place in [ranks([_name(row) for row in rows])]
        for row in rows
        if place[_name(row)]
    )


def unpaired_sentence(views: Iterable[View]) -> str:
    """What a reader of ratios must know; "" where every device and precision has one ceiling."""
    lines = []
    for (_, precision), rows in _by_device(views).items():
        sizes = {name: si(row.peak_flop_per_s or 0.0, "FLOP/s") for row in rows for name in [_name(row)]}
        first, *others = (sizes[name] for name in ranks([_name(row) for row in rows]))
        if others:
            lines.append(f"{precision}: {first}, and {' and '.join(others)} where marked{MARK}")
    if not lines:
        return ""
    return (
        f"This run divides by different ceilings of one device, measured in different sessions ({'; '.join(lines)}). "
        f"Ratios with{MARK} do not compare with the others."
    )


def _by_device(views: Iterable[View]) -> Mapping[tuple[str, str], list[Utilization]]:
    """(device, precision) → headlines that are over a measured ceiling."""
    groups: dict[tuple[str, str], list[Utilization]] = {}
    for view in views:
        if view.headline is not None and _name(view.headline):
            groups.setdefault((view.run.device, view.run.precision), []).append(view.headline)
    return groups


def _name(row: Utilization) -> str:
    return ceiling_name(row.denominator, row.peak_flop_per_s, row.peak_source or "")
