"""The tables of report.html: cells, why a number is not there, warnings.

From derived records to rows of text. Nothing is calculated but ranges.
"""

from collections.abc import Iterable, Iterator, Sequence

from analysis.utilization.numerators import PROFILER
from cleaning.reconcile.variants import Built, View
from reports.shared.html_tables import Cells, Names, Table, grouped, in_order
from reports.shared.layout import Styled
from reports.shared.numbers import (
    DASH,
    OF_WHAT,
    SHORT,
    STATUS_WORDS,
    digits,
    listed,
    merged,
    session_words,
    skeleton,
)
from reports.sweep.table import cells_table, rate_unit
from results.records.counts import Agreement

NO_REASON = "no reason is given"

Said = tuple[str, str, str]
"""(what is said of, the words, cell id)."""

_MOST_CALLS = 4


def measured_cells(views: Sequence[View]) -> Table:
    """The table of the end of a sweep with each cell's peak and FLOP per byte, `used` beside the model: a telephone
    shows two columns."""
    ordered = in_order(views)
    scale, unit = rate_unit(ordered)
    table = cells_table(ordered, scale, unit)
    columns = [column.name for column in table.columns]
    rows = [[cell.text if isinstance(cell, Styled) else cell for cell in row] for row in table.rows]
    used = columns.index("used")
    for view, row in zip(ordered, rows, strict=True):
        row.insert(1, row.pop(used))
        head, intensity = view.headline, view.counted.flop_per_byte if view.counted else None
        peak = f"{digits((head.peak_flop_per_s or 0.0) / scale)} {SHORT[head.denominator]}" if head else DASH
        row[-1:-1] = [peak, DASH if intensity is None else digits(intensity, 2)]
    columns.insert(1, columns.pop(used))
    columns[-1:-1] = ["peak", "FLOP/byte"]
    dim = frozenset(index for index, row in enumerate(table.styles) if row)
    caption = "Time, rate and utilization of each cell's training step"
    words = frozenset(("model", "precision", "why not more"))
    return Table(caption, tuple(columns), tuple(map(tuple, rows)), words, dim)


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
