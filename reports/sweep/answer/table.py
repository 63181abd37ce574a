"""The table a person reads at the end of a run, and the same rows as CSV and JSON.

The table shows one fraction a cell, the headline, and says of what; utilization.csv has every other. Cells with
profiles get a second table: their methods side by side, and how long an epoch takes. Both fit 100 columns and need no
colour. Nothing is printed here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cleaning.reconcile import Built, View
from reports.shared import (
    OF_WHAT,
    SHORT,
    STATUS_WORDS,
    WIDTH,
    cell_name,
    digits,
    half_width,
    merged,
    model_name,
    percent,
    shared_variant,
    si,
    si_time,
    skeleton,
    variant_lines,
    variant_of,
    verdict,
)
from reports.sweep.answer.headline import closing_sentence
from results.records import Record, Utilization, WorkTime, header
from results.store import key_of

if TYPE_CHECKING:
    from rich.table import Table

_UNKNOWN = "–"
_SHOWN = 4
_MOST_LETTERS = 18
"""Of a model's name on one line, so that all columns have room; what is longer goes on below."""

_NARROW = 7
"""Characters of a rate, so that the verdict's words are not cut."""

_NOTE = "note: "
_OF_OTHER_METHODS = ("convention:", "extrapolated:", "repaired:", "duplicates:")

METHODS = ("theory", "one", "batch", "epoch", "exact")
"""In the order in which they are told side by side."""

_OF_PROFILES = {"one", "batch", "epoch"}

_METHODS_SAY = "Used, by method; and an epoch: its images, how long it takes, under the profiler, and run whole."

CONVENTIONS = {
    "flop": "",
    "post2021": "convention post2021: a multiply-add counts as 1, over the fp32 peak whatever the precision",
}
"""Convention → what the heading says of it."""

_NOT_FLOP = "These are not utilizations in FLOP: leave out --convention for those. docs/post2021.md says what differs."


def to_text(built: Built, width: int = WIDTH, colour: bool = False, convention: str = "flop") -> str:
    """Everything a person is shown at the end: tables, what the columns divide by, what failed, one sentence."""
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    told = built if convention == "flop" else _by_the_post(built)
    views = _in_order(told.views)
    for line in filter(None, (heading(told), CONVENTIONS[convention])):
        console.print(Text(line, style="bold"))
    console.print(cells_table(views, "TFLOP/s" if convention == "flop" else "TMAC/s"))
    if any(_OF_PROFILES & set(view.run.methods) for view in told.views):
        console.print(Text(_METHODS_SAY))
        console.print(methods_table(views, told.work_times))
    for line in (*peak_lines(told.views), *failed_lines(told.views), *warning_lines(told)):
        console.print(Text(line))
    console.print(Text(closing_sentence(told.views) if convention == "flop" else _NOT_FLOP, style="bold"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _in_order(views: Sequence[View]) -> list[View]:
    """Cells by name and size: they are measured, and kept, in an order drawn by lot."""
    return sorted(views, key=lambda view: (view.run.model, view.run.batch_size, view.run.precision))


def _by_the_post(built: Built) -> Built:
    """The same cells with the fractions of the 2021 post's arithmetic."""
    rows: dict[tuple[str, int], list[Utilization]] = {}
    for row in built.post2021:
        rows.setdefault(key_of(row), []).append(row)
    views = (replace(view, fractions=tuple(rows.get(key_of(view.run), ())), counted=None) for view in built.views)
    return replace(built, views=tuple(views))


def heading(built: Built) -> str:
    """What was measured on: each device name, driver and torch version once; and what all cells have in common."""
    sittings = built.sittings
    names = dict.fromkeys(sitting.device_name or sitting.device for sitting in sittings)
    torch = dict.fromkeys(f"torch {sitting.torch_version}" for sitting in sittings if sitting.torch_version)
    drivers = dict.fromkeys(f"driver {sitting.driver}" for sitting in sittings if sitting.driver)
    shared = [variant] if (variant := shared_variant(built.views)) else []
    return " · ".join((*names, *torch, *drivers, *shared)) or "unknown device"


def cells_table(views: Sequence[View], rate: str = "TFLOP/s") -> Table:
    """One row a cell: model, batch, precision, step time ± interval, items/s, FLOP/s, peak, utilization, verdict.

    rate: heading of the achieved rate, in 10^12 a second.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    _add_columns(table, views, ("batch", "precision", "step ms", "±", "items/s", rate, "peak", "used"))
    table.add_column("verdict", min_width=12)
    shared = shared_variant(views)
    for view in views:
        below = [] if variant_of(view) == shared else variant_lines(variant_of(view))
        table.add_row(*_cells(view, below), style=None if view.measured else "dim")
    return table


def methods_table(views: Sequence[View], times: Sequence[WorkTime]) -> Table:
    """One row a cell: its utilization by each method, over the peak it is told by; an epoch's time, profiled and real.

    Of several counters, `theory` is that of the first that could count. Not measured and not asked for are both "–".
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    asked = [method for method in METHODS if any(method in view.run.methods for view in views)]
    epochs = {key_of(row): row for row in times if row.work == "epoch"}
    heads = ("images", "takes", "profiled", "whole") if epochs else ()
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    _add_columns(table, views, ("batch", "precision", *asked, *heads))
    shared = shared_variant(views)
    for view in views:
        below = [] if variant_of(view) == shared else variant_lines(variant_of(view))
        used = [_used(view, method) for method in asked]
        table.add_row(*_start(view, below), *used, *(_epoch(view, epochs) if epochs else ()))
    return table


def _add_columns(table: Table, views: Sequence[View], names: Iterable[str]) -> None:
    """The model's column and, right of it, columns of numbers (and of the precision)."""
    longest = max((len(model_name(view.run)) for view in views), default=0)
    table.add_column("model", overflow="fold", min_width=min(longest, _MOST_LETTERS), max_width=20)
    for name in names:
        table.add_column(name, no_wrap=True, justify="left" if name == "precision" else "right")


def _used(view: View, method: str) -> str:
    """A cell's utilization by one method, over the denominator of its headline."""
    row = view.headline and view.fraction(method, view.headline.denominator)
    return percent(row.utilization_ratio) if row and row.utilization_ratio is not None else _UNKNOWN


def _epoch(view: View, epochs: Mapping[tuple[str, int], WorkTime]) -> list[str]:
    """Images of an epoch, and its three times."""
    row = epochs.get(key_of(view.run))
    if row is None:
        return [_UNKNOWN] * 4
    times = (row.time_s, row.profiled_time_s, row.real_time_s)
    items = _UNKNOWN if row.items is None else str(row.items)
    return [items, *(_UNKNOWN if time_s is None else si_time(time_s) for time_s in times)]


def _start(view: View, below: Sequence[str]) -> list[str]:
    """Model, batch and precision; below: lines under the model's name."""
    run = view.run
    return ["\n".join((model_name(run), *below)), str(run.batch_size), run.precision]


def peak_lines(views: Iterable[View]) -> list[str]:
    """Each peak that the table divides by, with its source, once."""
    found = {}
    for view in views:
        row = view.headline
        if row is not None and row.peak_flop_per_s is not None:
            key = (SHORT[row.denominator], row.peak_source)
            doubt = next((f"; {mark}" for mark in row.warnings if mark.startswith("ceiling_doubtful")), "")
            found[key] = (
                f"{key[0]}: {OF_WHAT[row.denominator]}, {si(row.peak_flop_per_s, 'FLOP/s')} ({row.peak_source}){doubt}"
            )
    return list(found.values())


def failed_lines(views: Sequence[View]) -> list[str]:
    """Each cell that was not measured, with its status and reason; each that was, but has no ratio, with why."""
    lines = []
    shared = shared_variant(views)
    for view in views:
        reason, name = view.run.reason, cell_name(view, shared)
        if view.measured and view.headline is None:
            reasons = dict.fromkeys(row.reason for row in view.fractions if row.reason)
            lines.append(f"{name}: no utilization: {'; '.join(reasons) or 'no method was asked for'}")
        elif not view.measured:
            words = STATUS_WORDS.get(view.run.status, view.run.status)
            lines.append(f"{name}: {words}{f': {reason}' if reason else ''}")
    return lines


def warning_lines(built: Built) -> list[str]:
    """Every warning once, with the cells that have it, why works have no time, and the problems of the run's files.

    Warnings that differ in their numbers alone are one. How other methods count is said in utilization.csv, beside
    their numbers, which the table does not show.
    """
    found: dict[str, tuple[list[str], list[str]]] = {}
    shared, untimed = shared_variant(built.views), _untimed(built)
    for view in built.views:
        marks = dict.fromkeys(mark for row in view.fractions for mark in row.warnings)
        told_here = (mark for mark in marks if not mark.startswith(_OF_OTHER_METHODS))
        for warning in (*told_here, *untimed.get(key_of(view.run), ())):
            texts, names = found.setdefault(skeleton(warning), ([], []))
            texts.append(warning)
            names.append(cell_name(view, shared))
    told = sum(view.measured for view in built.views)
    lines = [f"note: {merged(texts)} ({_listed(list(dict.fromkeys(names)), told)})" for texts, names in found.values()]
    return lines + [f"note: {problem}" for problem in built.problems]


def _untimed(built: Built) -> dict[tuple[str, int], list[str]]:
    """What a measured cell's works lack, and why; a failed cell's reason is reported once, for all of it."""
    measured = {key_of(view.run) for view in built.views if view.measured}
    lacks: dict[tuple[str, int], list[str]] = {}
    for row in built.work_times:
        if key_of(row) in measured and (row.status == "unavailable" or row.reason.startswith(_NOTE)):
            lacks.setdefault(key_of(row), []).append(f"{row.work}: {row.reason.removeprefix(_NOTE)}")
    return lacks


def to_csv(rows: Sequence[Record], record: type[Record]) -> str:
    """Rows as CSV, the header being the record's fields; unknown is an empty field."""
    out = io.StringIO()
    writer = csv.DictWriter(out, header(record), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.to_row() for row in rows)
    return out.getvalue()


def to_json(rows: Sequence[Record]) -> str:
    """Rows as one JSON array with every key in each; unknown is null."""
    return json.dumps([_plain(row) for row in rows], indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(row: Record) -> dict[str, Any]:
    return {name: getattr(row, name) for name in header(type(row))}


def _cells(view: View, below: Sequence[str]) -> list[str]:
    """The texts of one row of the table; below: lines under the model's name."""
    row, step, start = view.headline or view.timed, view.step, _start(view, below)
    if row is None or row.time_s is None:
        return [*start, *[_UNKNOWN] * 6, verdict(view)]
    width, rate, peak = half_width(step) if step is not None else None, row.achieved_flop_per_s, row.peak_flop_per_s
    return [
        *start,
        digits(step.time_s * 1e3) if step is not None and step.time_s is not None else _UNKNOWN,
        percent(width) if width is not None else _UNKNOWN,
        digits(row.items_per_s) if row.items_per_s is not None else _UNKNOWN,
        _narrow(rate / 1e12) if rate is not None else _UNKNOWN,
        f"{digits(peak / 1e12)} {SHORT[row.denominator]}" if peak is not None else _UNKNOWN,
        percent(row.utilization_ratio) if row.utilization_ratio is not None else _UNKNOWN,
        verdict(view),
    ]


def _narrow(value: float) -> str:
    """Three digits; in exponents where they take more room than a column has."""
    text = digits(value)
    return text if len(text) <= _NARROW else f"{value:.1e}"


def _listed(names: Sequence[str], told: int) -> str:
    if len(names) == told and told > 1:
        return f"all {told} measured cells"
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
