"""The tables of report.html: cells, counters beside our own count, why a number is not there, warnings, machines.

From derived records to rows of text. Nothing is calculated but ranges.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.utilization.numerators import PROFILER
from cleaning.reconcile.variants import Built, View
from reports.shared.html_tables import Cells, Names, Table, grouped, in_order, natural, span
from reports.shared.layout import Styled
from reports.shared.numbers import (
    DASH,
    MARK,
    OF_WHAT,
    SHORT,
    STATUS_WORDS,
    digits,
    listed,
    merged,
    other_ceilings,
    session_words,
    si,
    skeleton,
)
from reports.sweep.table import cells_table, rate_unit
from results.records.cell import Sitting
from results.records.counts import Agreement

NO_REASON = "no reason is given"

Said = tuple[str, str, str]
"""(what is said of, the words, cell id)."""

_MOST_CALLS = 4
_UNITS = {"_bytes": "B", "_hz": "Hz", "_w": "W", "_j": "J", "_s": "s"}
_four = functools.partial(digits, count=4)


def measured_cells(views: Sequence[View]) -> Table:
    """The table of the end of a sweep with each cell's peak and FLOP per byte, `used` beside the model: a telephone
    shows two columns."""
    ordered = in_order(views)
    scale, unit = rate_unit(ordered)
    table = cells_table(ordered, scale, unit)
    columns = [column.name for column in table.columns]
    rows = [[cell.text if isinstance(cell, Styled) else cell for cell in row] for row in table.rows]
    used, others = columns.index("used"), other_ceilings(views)
    for view, row in zip(ordered, rows, strict=True):
        row.insert(1, row.pop(used) + (MARK if view.run.cell_id in others else ""))
        head, intensity = view.headline, view.counted.flop_per_byte if view.counted else None
        peak = f"{digits((head.peak_flop_per_s or 0.0) / scale)} {SHORT[head.denominator]}" if head else DASH
        row[-1:-1] = [peak, DASH if intensity is None else digits(intensity, 2)]
    columns.insert(1, columns.pop(used))
    columns[-1:-1] = ["peak", "FLOP/byte"]
    dim = frozenset(index for index, row in enumerate(table.styles) if row)
    caption = "Time, rate and utilization of each cell's training step"
    words = frozenset(("model", "precision", "why not more"))
    return Table(caption, tuple(columns), tuple(map(tuple, rows)), words, dim)


def agreement(rows: Sequence[Agreement], phase: str) -> Table | None:
    """Counter × model: its FLOP ÷ our own, and below it how far apart they are."""
    mine = [row for row in rows if row.phase == phase]
    counters = list(dict.fromkeys(row.counter for row in mine if row.ratio is not None))
    models = sorted({row.model for row in mine}, key=natural)
    found = grouped(mine, lambda row: (row.model, row.counter))
    lines = tuple((model, *(_agreed(found.get((model, counter), [])) for counter in counters)) for model in models)
    caption = f"{phase.capitalize()}: FLOP of each counter's convolutions and matrix products ÷ our own count"
    return Table(caption, ("model", *counters), lines, frozenset(("model",))) if counters else None


def _agreed(rows: Sequence[Agreement]) -> str:
    """The ratio over a model's cells, and the largest disagreement with its batch; "1" is equal to the last FLOP."""
    known = [row for row in rows if row.ratio is not None]
    if not known:
        return STATUS_WORDS.get(rows[0].status, "unknown") if rows else DASH
    if all(row.difference_flop == 0 for row in known):
        return "1"
    worst = max(known, key=lambda row: abs((row.ratio or 0.0) - 1))
    text = span([row.ratio for row in known], _four)
    if (off := worst.difference_flop) is None:
        return text
    return f"{text}\n{'−' if off < 0 else '+'}{si(abs(off), 'FLOP')} at batch {worst.batch_size}"


def reasons(built: Built, names: Names) -> Table | None:
    """Why a number is not there, or why a counter's is not ours."""
    said = [*failures(built.views), *_without_number(built), *_counters(built.agreement)]
    return told_once("Numbers that are missing, and counters that differ", ("what", "reason"), said, names)


def warnings(views: Sequence[View], names: Names) -> Table | None:
    """Every warning, by its code."""
    said = []
    for view in in_order(views):
        marks = (*view.run.warnings, *(mark for row in view.fractions for mark in row.warnings))
        not_converged = [f"not_converged: {view.run.reason}"] if view.run.status == "not_converged" else []
        for mark in (*not_converged, *marks):
            code, colon, text = mark.partition(": ")
            said.append((code if colon else "", text if colon else mark, view.run.cell_id))
    codes = list(dict.fromkeys(code for code, *_ in said))
    said.sort(key=lambda each: codes.index(each[0]))
    return told_once("What to know before using these numbers", ("code", "warning"), said, names)


def told_once(caption: str, heads: Cells, said: Iterable[Said], names: Names) -> Table | None:
    """A row for each text with its cells at the end; texts that differ in their numbers alone are one."""
    found = grouped(dict.fromkeys(said), lambda each: (each[0], skeleton(each[1])))
    rows = tuple(
        (what, session_words(merged([text for _, text, _ in same])), names.listed(cell for *_, cell in same))
        for (what, _), same in found.items()
    )
    columns = (*heads, "cells")
    return Table(caption, columns, rows, frozenset(columns)) if rows else None


def failures(views: Iterable[View]) -> Iterator[Said]:
    """Cells that were not measured."""
    for view in in_order(views):
        if not view.measured:
            words = STATUS_WORDS.get(view.run.status, view.run.status)
            yield words, view.run.reason or NO_REASON, view.run.cell_id


def _without_number(built: Built) -> Iterator[Said]:
    """Of measured cells the methods, peaks, profiles and times that have no number."""
    measured = [view for view in in_order(built.views) if view.measured]
    for view in measured:
        if not view.fractions:
            yield "utilization", "no method was asked for", view.run.cell_id
        for row in view.fractions:
            if row.utilization_ratio is None:
                is_divisible = row.peak_flop_per_s is None and row.model_flop is not None and row.time_s is not None
                method = ", ".join(filter(None, (row.method.replace("_", " "), row.numerator_source)))
                what = OF_WHAT.get(row.denominator, row.denominator) if is_divisible else method
                yield what, row.reason or NO_REASON, row.cell_id
    cells = {view.run.cell_id for view in measured}
    for count in built.profile_counts:
        if count.cleaned_flop is None and count.cell_id in cells:
            source = "" if count.source == PROFILER else f", {count.source}"
            yield f"profile of {count.work}{source}", count.reason or NO_REASON, count.cell_id
    for time in built.work_times:
        lacks = "time" if time.time_s is None else "profiled time" if time.profiled_time_s is None else ""
        if lacks and time.cell_id in cells:
            yield f"{lacks} of {time.work}", time.reason or NO_REASON, time.cell_id


def _counters(rows: Iterable[Agreement]) -> Iterator[Said]:
    """What a counter says of itself; where its products are not ours also what it has no rule for, if it names any."""
    for row in rows:
        parts = [row.reason] if row.reason else []
        if row.difference_flop:
            names, much = list(row.not_understood), "much" if row.difference_flop > 0 else "little"
            lacks = f"it has no rule for {listed(names, _MOST_CALLS)}"
            parts.append(lacks if names else f"it counts too {much} and does not say where")
        if parts:
            status = "differs" if row.status == "ok" else STATUS_WORDS.get(row.status, row.status)
            yield f"{row.counter}, {row.phase}: {status}", "; ".join(parts), row.cell_id


def environment(sittings: Sequence[Sitting], named: Sequence[str] = ()) -> Table | None:
    """A column for each session; what no session knows is left out. named: what the columns are called."""
    facts = [_facts(sitting) for sitting in sittings]
    keys = dict.fromkeys(key for mine in facts for key in mine)
    lines = tuple(
        (key, *(mine.get(key) or DASH for mine in facts)) for key in keys if any(mine.get(key) for mine in facts)
    )
    columns = ("fact", *(named or [f"session {sitting.sitting}" for sitting in sittings]))
    return Table("Machine and versions of each session", columns, lines, frozenset(columns)) if lines else None


def _facts(sitting: Sitting) -> dict[str, str]:
    """What is known of a session, by name; empty where it is not."""
    first = {
        "device": " ".join(filter(None, (sitting.device_name, f"({sitting.device})"))),
        "driver": sitting.driver,
        "torch": sitting.torch_version,
        "started at": sitting.started_at,
        "host": sitting.host,
        "row of peaks.csv": sitting.peak_row,
    }
    shown = {"device", "name", "driver", "torch", "host"}
    host = {key: _fact(key, value) for key, value in sitting.environment.items() if key not in shown}
    before = {f"before the run: {key}": _fact(key, value) for key, value in sitting.preflight.items()}
    return {**first, **host, **before}


def _fact(key: str, value: Any) -> str:
    """A value of the environment as text: flags by their names, quantities with their unit, unknown as empty."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        flags = all(isinstance(item, bool) for item in value.values())
        parts = (name if flags else f"{name}={_fact(name, item)}" for name, item in value.items() if item or not flags)
        return ", ".join(parts) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(_fact(key, item) for item in value)
    unit = next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")
    if unit and isinstance(value, (int, float)):
        return si(value, unit)
    return digits(value) if isinstance(value, float) else str(value)
