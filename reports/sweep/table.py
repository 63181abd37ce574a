"""Writes the text at the end of a run: the verdict with its intervals, tables, peaks, failures and warnings.

`to_text` takes a `Built` (everything derived from the run) and returns the page. `gates_text` takes the gates' verdicts
and returns the text of `--check`. The first table shows one utilization per cell and names its numerator and
denominator; utilization.csv has every other. Cells with profiles get a second table, with their methods side by side
and the time of an epoch. The text fits the requested width and needs no colour. Nothing is printed here.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from cleaning.reconcile.derived import RECORDED_METHODS, Built, View
from cleaning.reconcile.variants import devices_sentence
from reports.shared.html import span
from reports.shared.layout import WIDTH, HangingIndent, Part, StyledText, TableColumn, TextTable, page, strong
from reports.shared.numbers import (
    DASH,
    MARK_TEXTS,
    OF_WHAT,
    SHORT,
    STATUS_TEXTS,
    cell_name,
    digits,
    merged,
    own_lines,
    percent,
    repeat_text,
    shared_variant,
    si_time,
    skeleton,
    source_name,
    used_interval,
    verdict,
    with_session,
)
from reports.sweep.headline import closing, intervals
from reports.sweep.repeats import one_a_cell, parallel_parts, repeat_lines, variant_parts
from results.process import collector_off
from results.records.answers import FAIL, OPEN, PASS, Utilization, Verdict, WorkTime
from results.store.layout import by_cell, key_of
from results.text_files import listed

_SHOWN = 4
_NAME_LETTERS = 14
"""Minimum number of letters of a model's name on one line; longer names may wrap."""

_UNITS = ((1e12, "T"), (1e9, "G"))
"""Units for the rates of a table: the first one in which the largest rate is at least 1."""

_NARROW = 7
"""Maximum number of characters of a rate; longer ones would cut the verdict."""

_NOTE = "note: "
MOST_NOTES = 4
_OF_OPTIONS = ("quick", "paired_ceiling")
"""Codes of warnings that follow from the run's options and are shown last."""

_OF_OTHER_METHODS = ("convention:", "extrapolated:", "repaired:", "duplicates:")

METHODS = ("theory", "one", "batch", "epoch", "exact")
"""Methods of counting, in the order of the columns."""


CONVENTIONS = {
    "flop": "",
    "post2021": "convention post2021: a multiply-add counts as 1, over the fp32 peak whatever the precision",
}
"""Convention → its text in the heading."""

_NOT_FLOP = "These are not utilizations in FLOP: leave out --convention for those. docs/results.md says what differs."


@collector_off()
def to_text(built: Built, width: int = WIDTH, colour: bool = False, convention: str = "flop") -> str:
    """Return the text at the end of a run: one sentence, tables, the peaks of the columns, failures."""
    shown = built
    if convention != "flop":  # the run's cells with the fractions of the 2021 post's arithmetic
        rows = by_cell(built.post2021)
        fractions = (tuple(rows.get(key_of(view.run), ())) for view in built.views)
        own = (replace(view, fractions=of, counted=None) for view, of in zip(built.views, fractions, strict=True))
        shown = replace(built, views=tuple(own))
    in_order = attrgetter("run.model", "run.batch_size", "run.precision", "run.layout", "run.repeat")
    views = sorted(shown.views, key=in_order)  # they are measured, and kept, in an order drawn by lot
    parts: list[Part] = []
    if convention == "flop":
        conclusion = closing(shown.views)
        parts += [strong(conclusion.sentence), *filter(None, [intervals(conclusion, shown.views)]), ""]
    parts += [strong(line) for line in filter(None, (heading(shown), CONVENTIONS[convention]))]
    scale, unit = rate_unit(views, "FLOP/s" if convention == "flop" else "MAC/s")
    parts += ["", cells_table(one_a_cell(views, views), scale, unit), ""]
    if any(RECORDED_METHODS & set(view.run.methods) for view in shown.views):
        parts += [methods_text(views, shown.work_times), "", methods_table(views, shown.work_times), ""]
    parts += variant_parts(shown.variants)
    parts += parallel_parts(shown.parallel_steps, views)
    parts += [f"repeats: {line}" for line in repeat_lines(views)]
    parts += [*peak_lines(shown.views), *attention_lines(views), *failed_lines(shown.views), *warning_lines(shown)]
    parts += [strong(_NOT_FLOP)] if convention != "flop" else []
    return page(parts, width, colour)


def heading(built: Built) -> str:
    """Return the heading: each device name, driver and torch version once; and the parameters that all cells share."""
    sessions = built.sessions
    names = dict.fromkeys(session.device_name or session.device for session in sessions)
    torch = dict.fromkeys(f"torch {session.torch_version}" for session in sessions if session.torch_version)
    drivers = dict.fromkeys(f"driver {session.driver}" for session in sessions if session.driver)
    shared = [variant] if (variant := shared_variant(built.views)) else []
    return " · ".join((*names, *torch, *drivers, *shared)) or "unknown device"


def rate_unit(views: Iterable[View], unit: str = "FLOP/s") -> tuple[float, str]:
    """Return (scale, unit) in which a table shows all of its rates and peaks: that of the largest."""
    rows = [row for view in views if (row := view.headline or view.timed_row) is not None]
    top = max((rate or 0.0 for row in rows for rate in (row.achieved_flop_per_s, row.peak_flop_per_s)), default=0.0)
    scale, prefix = next((pair for pair in _UNITS if top >= pair[0] * 0.9995), _UNITS[-1] if top else _UNITS[0])
    return scale, prefix + unit


def cells_table(views: Sequence[View], scale: float = 1e12, unit: str = "TFLOP/s") -> TextTable:
    """Return a row for each cell: model, batch, precision, utilization ± its interval, step time, FLOP/s, items/s, and
    in words why the utilization is not higher (`verdict`).

    scale: the number by which a rate is divided to be shown in `unit`.
    """
    columns = (
        *_start_columns(),
        TableColumn("used", right=True),
        TableColumn("±", right=True, rank=1),
        TableColumn("step ms", right=True, rank=3),
        TableColumn(unit, right=True, rank=4),
        TableColumn("items/s", right=True, rank=5),
        TableColumn("why not more", right=False),
    )
    shared = shared_variant(views)
    rows = [_cells(view, own_lines(view, shared), scale) for view in views]
    return TextTable(columns, rows, styles=["" if view.measured else "dim" for view in views])


def methods_text(views: Iterable[View], times: Iterable[WorkTime]) -> str:
    """Return the text above the table of methods; times: as `methods_table` takes them."""
    differs = any(view.headline and view.headline.denominator != view.methods_denominator for view in views)
    of = ", relative to the ceiling measured in the session" if differs else ""
    has_epochs = any(row.work == "epoch" for row in times)
    epoch = "; takes, profiled, whole: time of an epoch, from its batches, under the profiler, run as a whole"
    return f"Utilization by each method{of}{epoch if has_epochs else ''}."


def methods_table(views: Sequence[View], times: Sequence[WorkTime]) -> TextTable:
    """Return a row for each cell: its utilization by each method, over its peak; an epoch's time, profiled and real.

    Of several counters, `theory` is that of the first that could count. Both "not measured" and "not requested" are
    "–".
    """
    methods = [method for method in METHODS if any(method in view.run.methods for view in views)]
    epochs = {key_of(row): row for row in times if row.work == "epoch"}
    heads = {"images": 4, "takes": 1, "profiled": 3, "whole": 3} if epochs else {}
    columns = [*_start_columns(), *(TableColumn(name, right=True) for name in methods)]
    columns += [TableColumn(name, right=True, rank=rank) for name, rank in heads.items()]
    shared, rows = shared_variant(views), []
    for view in views:
        below = own_lines(view, shared)
        denominator = view.methods_denominator
        fractions = [view.fraction(method, denominator) if denominator else None for method in methods]
        used = [DASH if row is None else percent(row.utilization_ratio or 0.0) for row in fractions]
        rows.append([*_start(view, below), *used, *(_epoch(view, epochs) if epochs else ())])
    return TextTable(columns, rows)


def _start_columns() -> list[TableColumn]:
    """Return columns of the model's name, the batch and the precision."""
    name = TableColumn("model", right=False, wraps=True, least=_NAME_LETTERS)
    return [name, TableColumn("batch", right=True), TableColumn("precision", right=False, rank=2)]


def _epoch(view: View, epochs: Mapping[tuple[str, int], WorkTime]) -> list[str]:
    """Return images of an epoch, and its three times."""
    row = epochs.get(key_of(view.run))
    if row is None:
        return [DASH] * 4
    times = (row.time_s, row.profiled_time_s, row.real_time_s)
    items = DASH if row.items is None else str(row.items)
    return [items, *(DASH if time_s is None else si_time(time_s) for time_s in times)]


def _start(view: View, below: Sequence[str]) -> list[str]:
    """Return model, batch and precision; below: lines under the model's name."""
    run = view.run
    return ["\n".join((f"{run.model}{repeat_text(run)}", *below)), str(run.batch_size), run.precision]


def peak_lines(views: Sequence[View]) -> list[str]:
    """Return each peak that the table divides by, in the table's unit, with its source, once."""
    rows: dict[tuple[str, str], list[Utilization]] = {}
    for row in (view.headline for view in views):
        if row is not None and row.peak_flop_per_s is not None:
            rows.setdefault((row.denominator, source_name(row.peak_source)), []).append(row)
    scale, unit = rate_unit(views)
    lines = []
    for (denominator, source), same in rows.items():
        rates = [(row.peak_flop_per_s or 0.0) / scale for row in same]
        rate = span(rates if denominator == "paired_ceiling" else rates[-1:], digits)
        doubts = (f"; {with_session(mark)}" for mark in same[-1].warnings if mark.startswith("ceiling_doubtful"))
        lines.append(f"{SHORT[denominator]}: {OF_WHAT[denominator]}, {rate} {unit} ({source}){next(doubts, '')}")
    return lines


def attention_lines(views: Sequence[View]) -> list[str]:
    """Return a line on the other conventions of attention for each cell in which they count less."""
    lines, shared = dict[str, None](), shared_variant(views)
    for view in views:
        row = view.headline or view.timed_row
        if row is None or not row.model_flop:
            continue
        flop = {"causal": row.causal_flop, "mask-exact": row.mask_exact_flop}
        if any(count is not None and count != row.model_flop for count in flop.values()):
            flop |= {} if row.hardware_flop is None else {"hardware": row.hardware_flop}  # said where it is known
            conventions = (
                f"{name} {'not known' if count is None else f'{percent(count / row.model_flop)} of that'}"
                for name, count in flop.items()
            )
            lines[f"{cell_name(view, shared)}: attention is counted dense; {', '.join(conventions)}"] = None
    return list(lines)


def failed_lines(views: Sequence[View]) -> list[str]:
    """Return a line for each cell that was not measured, with its status and reason, and for each measured cell without
    a ratio."""
    lines = []
    shared = shared_variant(views)
    for view in views:
        if view.measured and view.headline is not None:
            continue
        reason, name = view.run.reason, cell_name(view, shared)
        if view.measured:
            reasons = dict.fromkeys(with_session(row.reason) for row in view.fractions if row.reason)
            lines.append(f"{name}: no utilization: {'; '.join(reasons) or 'no method was requested'}")
        else:
            status = STATUS_TEXTS.get(view.run.status, view.run.status)
            lines.append(f"{name}: {status}{f': {with_session(reason)}' if reason else ''}")
    return lines


def warning_lines(built: Built) -> list[str]:
    """Return a line for each problem of the run's files, then one for each kind of warning and for passes without a
    time.

    A line has the first warning of its kind, with the numbers of all that differ in their numbers only, and their
    cells. The worst come first, at most MOST_NOTES; the page has all.
    """
    texts: dict[str, list[str]] = {}
    names: dict[str, list[str]] = {}
    shared, untimed = shared_variant(built.views), _untimed(built)
    for view in built.views:
        marks = dict.fromkeys(mark for row in view.fractions for mark in row.warnings)
        own = (mark for mark in marks if not mark.startswith(_OF_OTHER_METHODS))
        for warning in (*own, *untimed.get(key_of(view.run), ())):
            code = warning.split(":")[0]
            texts.setdefault(code, []).append(warning)
            names.setdefault(code, []).append(cell_name(view, shared))
    measured = sum(view.measured for view in built.views)
    worst = sorted(texts, key=lambda code: [*MARK_TEXTS, code].index(code) + len(MARK_TEXTS) * (code in _OF_OPTIONS))
    lines = []
    for code in worst[:MOST_NOTES]:
        kind = [skeleton(text) == skeleton(texts[code][0]) for text in texts[code]]
        text = with_session(merged(list(itertools.compress(texts[code], kind))))
        alike = dict.fromkeys(itertools.compress(names[code], kind))
        others = len({*names[code]} - {*alike})
        cells = f"all {measured} measured cells" if len(alike) == measured > 1 else listed([*alike], _SHOWN)
        lines.append(f"note: {text} ({cells}{f'; {others} more with another text' if others else ''})")
    if more := worst[MOST_NOTES:]:
        lines.append(f"note: also {', '.join(more)}: see report.html")
    devices = devices_sentence(built.utilization)
    return [*(f"note: {problem}" for problem in (*([devices] if devices else []), *built.problems)), *lines]


def _untimed(built: Built) -> dict[tuple[str, int], list[str]]:
    """Return what a measured cell's passes lack, and why; a failed cell's reason is reported once, for all of it."""
    measured = {key_of(view.run) for view in built.views if view.measured}
    lacks: dict[tuple[str, int], list[str]] = {}
    for row in built.work_times:
        if key_of(row) in measured and (row.status == "unavailable" or row.reason.startswith(_NOTE)):
            lacks.setdefault(key_of(row), []).append(f"{row.work}: {row.reason.removeprefix(_NOTE)}")
    return lacks


def _cells(view: View, below: Sequence[str], scale: float) -> list[str | StyledText]:
    """Return the texts of one row of the table; below: lines under the model's name."""
    row, step, start = view.headline or view.timed_row, view.step, _start(view, below)
    if row is None or row.time_s is None:
        return [*start, *[DASH] * 5, verdict(view)]
    rate = row.achieved_flop_per_s
    achieved = digits(rate / scale) if rate is not None else DASH
    if rate is not None and len(achieved) > _NARROW:
        achieved = f"{rate / scale:.1e}"
    used = percent(row.utilization_ratio) if row.utilization_ratio is not None else DASH
    return [
        *start,
        StyledText(used, "bold"),
        used_interval(view),
        digits(step.time_s * 1e3) if step is not None and step.time_s is not None else DASH,
        achieved,
        digits(row.items_per_s) if row.items_per_s is not None else DASH,
        verdict(view),
    ]


GATE_CELLS = 4
"""Maximum number of cells of a failing gate that the table names; csv and json have all."""

_MARKS = {PASS: "pass", FAIL: "FAIL", OPEN: "open"}


def gates_text(gates: Sequence[Verdict], names: Mapping[str, str], width: int = WIDTH, colour: bool = False) -> str:
    """Return a sentence, then a line for each gate with its cells if it fails. names: cell id → name for a person."""
    count = {name: sum(gate.verdict == name for gate in gates) for name in _MARKS}
    failing = ", ".join(gate.gate for gate in gates if gate.verdict == FAIL)
    needed = ", ".join(gate.gate for gate in gates if gate.verdict == OPEN and gate.needed)
    text = f"{len(gates)} gates: {count[PASS]} passed, {count[FAIL]} failed, {count[OPEN]} open"
    text += f"; failed: {failing}" if failing else ""
    parts: list[Part] = [strong(text + (f"; open, and needed to publish: {needed}" if needed else "")), ""]
    column, room = (max(map(len, texts)) for texts in zip(*((g.gate, str(g.asked)) for g in gates), strict=True))
    for gate in gates:
        mark = "OPEN" if gate.verdict == OPEN and gate.needed else _MARKS[gate.verdict]
        parts.append(HangingIndent(f"{gate.gate:<{column}}  {mark}  {gate.asked:>{room}}", gate.checks))
        failing_cells = list(gate.found.items()) if gate.verdict == FAIL else []
        called = {cell: f"{names[cell]} ({cell})" if cell in names else cell for cell in gate.found}
        lines = [f"{called[cell]}: {text}" for cell, text in failing_cells[:GATE_CELLS]]
        lines += [f"and {len(failing_cells) - GATE_CELLS} more"] if len(failing_cells) > GATE_CELLS else []
        parts += [f"      {line}" for line in filter(None, (*lines, gate.reason))]
    return page(parts, width, colour)
