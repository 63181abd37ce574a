"""The tables of report.html about cells: their utilization, what it is divided by, what failed, where they ran.

From derived records to rows of text. Nothing is calculated but ranges.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cleaning.reconcile.view import HEADLINES, View
from reports.shared.html_tables import (
    CELL,
    WORDS,
    Cells,
    Names,
    Table,
    grouped,
    in_order,
    merged_columns,
    reasons,
    span,
)
from reports.shared.layout import Styled
from reports.shared.numbers import (
    DASH,
    MARK,
    OF_WHAT,
    SHORT,
    STATUS_WORDS,
    digits,
    merged,
    other_ceilings,
    session_words,
    shown_interval,
    si,
    si_time,
    skeleton,
    source_name,
)
from reports.sweep.table import cells_table, rate_unit
from results.records.answers import Utilization
from results.records.cell import Sitting
from results.records.samples import Ceiling

METHOD_ORDER = ("theory", "theory_as_published", "one", "batch", "epoch", "exact")
"""Methods in the order in which they are shown; those it does not name come after them."""

Key = tuple[str, tuple[str, ...]]
"""A method and its sources."""

_MOST_SOURCES = 3
_UNITS = {"_bytes": "B", "_hz": "Hz", "_w": "W", "_j": "J", "_s": "s"}


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


def methods(views: Sequence[View], names: Names) -> Table | None:
    """Utilization by each method and each counter, over a denominator that all methods of the cell have."""
    caption = "Utilization by method, with its 95 % interval"
    rows = [row for view in views for row in view.fractions if row.denominator == view.methods_denominator]
    return _by_method(caption, rows, names, others=other_ceilings(views))


def theories(views: Sequence[View], names: Names) -> Table | None:
    """The method theory by counter, where the table of methods has one column for all of them."""
    denominators = [(view, _denominator(view)) for view in views]
    rows = [
        row for view, of in denominators for row in view.fractions if (row.denominator, row.method) == (of, "theory")
    ]
    if len({row.numerator_source for row in rows if row.utilization_ratio is not None}) <= _MOST_SOURCES:
        return None
    return _by_method("Theory, by the counter whose forward pass is taken three times", rows, names, apart=True)


def post2021(rows: Sequence[Utilization], names: Names) -> Table | None:
    """Utilization in the arithmetic of the 2021 post."""
    caption = "As the 2021 post counts: a multiply-add is 1, over the fp32 peak (docs/results.md says what that means)"
    return _by_method(caption, rows, names)


def denominators(views: Sequence[View], names: Names) -> Table | None:
    """The numerator shown first over every denominator that is known; None where only one is."""
    headlines = [(view, view.headline) for view in in_order(views)]
    lines = {
        view.run.cell_id: {
            row.denominator: row
            for row in view.fractions
            if (row.method, row.numerator_source) == (head.method, head.numerator_source)
            and row.utilization_ratio is not None
        }
        for view, head in headlines
        if head is not None
    }
    known = [name for name in OF_WHAT if any(name in line for line in lines.values())]
    if len(known) < 2:
        return None
    rows = tuple((*names.columns(cell), *(_fraction(line.get(name)) for name in known)) for cell, line in lines.items())
    heads = tuple(f"of {OF_WHAT[name]}" for name in known)
    table = Table("The same FLOP and time over every peak that is known", (*CELL, *heads), rows, WORDS)
    return merged_columns(table, len(CELL))


def missing_fractions(views: Sequence[View], names: Names) -> Table | None:
    """Why a measured cell has no ratio by a method, over the denominator that it is reported by."""
    why: dict[Cells, list[str]] = {}
    for view in views:
        of = _denominator(view) or HEADLINES[-1]
        for row in view.fractions:
            if view.measured and row.denominator == of and row.utilization_ratio is None:
                key = (
                    ", ".join(filter(None, (row.method.replace("_", " "), row.numerator_source))),
                    row.reason or "no reason is given",
                )
                why.setdefault(key, []).append(row.cell_id)
    return reasons("Methods without a number", ("method", "reason"), why, names)


def failures(views: Sequence[View], names: Names) -> Table | None:
    """Cells that were not measured, by status and reason; those that were, but have no ratio."""
    why: dict[Cells, list[str]] = {}
    for view in in_order(views):
        status = view.run.status
        if not view.measured:
            key = (STATUS_WORDS.get(status, status), view.run.reason or "no reason is given")
            why.setdefault(key, []).append(view.run.cell_id)
        elif view.headline is None:
            stated = "; ".join(dict.fromkeys(row.reason for row in view.fractions if row.reason))
            why.setdefault(("no utilization", stated or "no method was asked for"), []).append(view.run.cell_id)
    return reasons("What could not be measured", ("what", "reason"), why, names)


def warnings(views: Sequence[View], names: Names) -> Table | None:
    """Every warning once, with the cells that have it; those that differ in their numbers alone are one."""
    found: dict[Cells, list[tuple[str, str]]] = {}
    for view in in_order(views):
        marks = (*view.run.warnings, *(mark for row in view.fractions for mark in row.warnings))
        not_converged = [f"not_converged: {view.run.reason}"] if view.run.status == "not_converged" else []
        for mark in dict.fromkeys((*not_converged, *marks)):
            code, colon, text = mark.partition(": ")
            code, text = (code, text) if colon else ("", mark)
            found.setdefault((code, skeleton(text)), []).append((text, view.run.cell_id))
    codes = list(dict.fromkeys(code for code, _ in found))
    why: dict[Cells, list[str]] = {
        (code, merged([text for text, _ in same])): [cell for _, cell in same]
        for (code, _), same in sorted(found.items(), key=lambda item: codes.index(item[0][0]))
    }
    return reasons("What to know before using these numbers", ("code", "warning"), why, names)


def peaks(rows: Sequence[Utilization]) -> Table | None:
    """What was divided by, each peak once with its source; peaks of mixed units differ by model, shown from to."""
    found = grouped(
        [row for row in rows if row.peak_flop_per_s is not None],
        lambda row: (row.precision, row.denominator, source_name(row.peak_source)),
    )
    lines = tuple(
        (
            OF_WHAT.get(of, of),
            precision,
            span([row.peak_flop_per_s for row in mine], partial(si, unit="FLOP/s")),
            source,
        )
        for (precision, of, source), mine in sorted(found.items(), key=lambda item: (item[0][0], _place(item[0][1])))
    )
    columns = ("denominator", "precision", "FLOP/s", "source")
    return Table("Peaks that were divided by", columns, lines, frozenset(columns) - {"FLOP/s"}) if lines else None


def missing_peaks(rows: Sequence[Utilization], names: Names) -> Table | None:
    """Why a denominator is not known."""
    why: dict[Cells, list[str]] = {}
    for row in rows:
        if row.peak_flop_per_s is None and row.model_flop is not None and row.time_s is not None and row.reason:
            why.setdefault((OF_WHAT.get(row.denominator, row.denominator), row.reason), []).append(row.cell_id)
    return reasons("Peaks that are not known", ("denominator", "reason"), why, names)


def ceilings(rows: Sequence[Ceiling]) -> Table | None:
    """Every kernel that was timed, the fastest of its unit first."""
    ranked = sorted(rows, key=lambda row: (row.sitting, row.device, row.precision, row.unit, -(row.flop_per_s or 0.0)))
    failed, several = any(row.reason for row in rows), len({row.sitting for row in rows}) > 1
    lines = tuple(
        (
            " ".join(filter(None, (row.operation, row.shape, row.layout))),
            row.precision,
            row.unit,
            DASH if row.median_s is None else si_time(row.median_s),
            DASH if row.flop_per_s is None else si(row.flop_per_s, "FLOP/s"),
            *((session_words(row.reason),) if failed else ()),
            *((row.sitting,) if several else ()),
        )
        for row in ranked
    )
    more = (*(("reason",) if failed else ()), *(("session",) if several else ()))
    columns = ("kernel", "precision", "unit", "median time", "rate", *more)
    text = frozenset(("kernel", "precision", "unit", "reason", "session"))
    return Table("Kernels timed alone: the fastest of a unit is its ceiling", columns, lines, text) if lines else None


def environment(sittings: Sequence[Sitting], named: Sequence[str] = ()) -> Table | None:
    """A column for each session; what no session knows is left out. named: what the columns are called."""
    facts = [_facts(sitting) for sitting in sittings]
    keys = dict.fromkeys(key for mine in facts for key in mine)
    lines = tuple(
        (key, *(mine.get(key) or DASH for mine in facts)) for key in keys if any(mine.get(key) for mine in facts)
    )
    columns = ("fact", *(named or [f"session {sitting.sitting}" for sitting in sittings]))
    return Table("Machine and versions of each session", columns, lines, frozenset(columns)) if lines else None


def _denominator(view: View) -> str:
    """What the cell is reported by; of a cell without a headline the first that any method has; else empty."""
    if view.headline is not None:
        return view.headline.denominator
    known = {row.denominator for row in view.fractions if row.utilization_ratio is not None}
    return next((name for name in HEADLINES if name in known), "")


def _by_method(
    caption: str,
    rows: Iterable[Utilization],
    names: Names,
    apart: bool = False,
    others: frozenset[str] = frozenset(),
) -> Table | None:
    """A line for each cell, a column for each method and source; sources of a method that has many share one.

    rows: one for each cell, method and source. apart: no source shares a column. others: cells over another ceiling
    than most, whose peak is marked. Columns with equal texts in all rows are one.
    """
    cells = grouped(names.sorted(rows), lambda row: row.cell_id)
    keys = _methods_in([row for mine in cells.values() for row in mine], apart)
    lines = []
    for cell, mine in cells.items():
        if any(row.utilization_ratio is not None for row in mine):
            found = ([r for r in mine if r.method == method and r.numerator_source in of] for method, of in keys)
            of = _of(mine) + (MARK if cell in others else "")
            lines.append((*names.columns(cell), of, *map(_fractions, found)))
    columns = (*CELL, "of", *(_method_head(key, keys) for key in keys))
    return merged_columns(Table(caption, columns, tuple(lines), WORDS), len(CELL) + 1) if lines else None


def _methods_in(rows: Iterable[Utilization], apart: bool) -> list[Key]:
    """(method, its sources) of each column that has a ratio anywhere, in the order in which they are reported."""
    order = {name: place for place, name in enumerate(METHOD_ORDER)}
    methods = grouped((row for row in rows if row.utilization_ratio is not None), lambda row: row.method)
    keys: list[Key] = []
    for method in sorted(methods, key=lambda name: order.get(name, len(order))):
        sources = tuple(dict.fromkeys(row.numerator_source for row in methods[method]))
        together = len(sources) > _MOST_SOURCES and not apart
        keys += [(method, sources)] if together else [(method, (source,)) for source in sources]
    return keys


def _method_head(key: Key, keys: Sequence[Key]) -> str:
    """The method alone where it has one source, else with it; what a long name adds goes below."""
    method, sources = key
    first, _, rest = method.partition("_")
    more = sources[0] if sum(other == method for other, _ in keys) > 1 else ""
    more = f"{len(sources)} counters" if len(sources) > 1 else more
    return "\n".join(filter(None, (first, rest.replace("_", " "), more)))


def _of(rows: Sequence[Utilization]) -> str:
    """Peak and its kind, as in the table of cells."""
    head = next((row for row in reversed(rows) if row.peak_flop_per_s is not None), None)
    return DASH if head is None else f"{si(head.peak_flop_per_s or 0.0, 'FLOP/s')}\n{SHORT[head.denominator]}"


def _fractions(rows: Sequence[Utilization]) -> str:
    """One text; where sources differ from the smallest to the largest ratio."""
    known = [row for row in rows if row.utilization_ratio is not None]
    texts = list(dict.fromkeys(map(_fraction, known)))
    if len(texts) < 2:
        return texts[0] if texts else DASH
    return f"{span([row.utilization_ratio for row in known], lambda ratio: digits(100 * ratio))} %"


def _fraction(row: Utilization | None) -> str:
    """A ratio, and below it its interval, which has no upper end where that of the time reaches zero."""
    if row is None or row.utilization_ratio is None:
        return DASH
    low, high = shown_interval(row)
    ratio = f"{digits(100 * row.utilization_ratio)} %"
    if low is None:
        return ratio
    return f"{ratio}\n{digits(100 * low)} {'or more' if high is None else f'to {digits(100 * high)}'}"


def _place(denominator: str) -> int:
    names = list(OF_WHAT)
    return names.index(denominator) if denominator in names else len(names)


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
