"""Builds report.html of a run: its whole report in one file that needs no other file, no network and no script.

`page` takes a `Built` (everything derived from the run, `cleaning.reconcile.run`) and figures as SVG text, and returns
the document. It writes nothing and reads no clock, so that the same run gives the same bytes. The general parts of a
page are in `reports.shared.html`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.utilization.numerators import PROFILER
from cleaning.reconcile.derived import Built, View
from cleaning.reconcile.variants import devices_sentence
from reports.shared.html import (
    MOST_ROWS,
    CellNames,
    Cells,
    PageBlock,
    PageTable,
    PageVerdict,
    Part,
    Section,
    document,
    grouped,
    in_order,
    page_table,
    picture,
)
from reports.shared.layout import StyledText
from reports.shared.numbers import (
    DASH,
    OF_WHAT,
    SHORT,
    STATUS_TEXTS,
    digits,
    merged,
    skeleton,
    with_session,
)
from reports.sweep.figures import CAPTIONS
from reports.sweep.headline import basis, closing
from reports.sweep.repeats import one_a_cell, repeat_lines, variant_table
from reports.sweep.table import cells_table, heading, methods_table, methods_text, peak_lines, rate_unit
from results.process import collector_off
from results.records.counts import Agreement
from results.text_files import listed

if TYPE_CHECKING:
    from results.store.manifest import Manifest


VARIANTS = "The first variant of each model and batch has the first value of each requested list."

METHODS = (
    "theory: 3 × a counter's forward; one, batch, epoch: what torch.profiler recorded of one sample, one batch, one "
    "epoch, cleaned; exact: our own count of the very step. Each over its own measured time; utilization.csv has every "
    "counter, denominator and interval."
)
CLEANED = "{} changes, each a row of cleaned/cleaning_log.csv with its cell, before and after."


@collector_off()
def page(built: Built, figures: Mapping[str, str], manifest: Manifest | None = None) -> str:
    """Return the whole document. figures: name → SVG text, in the order in which they are shown.

    manifest: adds the run's name and the commands that measured it.
    """
    names = CellNames(built.views)
    variants = page_table(variant_table(built.variants), "Steps per second ÷ those of the first variant")
    problems = ("What was wrong with the run's files; rows that it names are in no number here.", tuple(built.problems))
    notes = reasons(built, names), warnings(built.views, names)
    changes = len(built.log)
    version, commands = (manifest.harness_version, "\n".join(manifest.commands)) if manifest else ("", "")
    how = (
        "Machine and versions of each session are in sessions.csv.",
        f"Measured by flopledger {version}." if version else "",
        PageBlock("Measured by", commands) if commands else None,
    )
    first = (
        Section("cells", "Cells", _cells(built)),
        Section("variants", "Variants", (VARIANTS, variants) if variants else ()),
    )
    below = (
        Section("methods", "Utilization by method", _methods(built)),
        Section("failures", "Failures and warnings", notes if any(notes) else ("None.",)),
        Section("repeats", "Repeats", (tuple(repeat_lines(built.views)),)),
        Section("cleaning", "Cleaning", (CLEANED.format(changes) if changes else "Nothing had to be changed.",)),
        Section("environment", "Environment", how),
    )
    devices = ", ".join(dict.fromkeys(session.device_name or session.device for session in built.sessions))
    title = " · ".join(filter(None, ("flopledger", manifest.name if manifest else "", devices or "unknown device")))
    rest = [
        Section("problems", "Problems of files", problems if built.problems else ()),
        *(replace(section, folded=True) for section in below),
    ]
    pictures = Section("figures", "Figures", _figures(built, figures))
    return document(title, _verdict(built), [*first, pictures, *rest])


def _verdict(built: Built) -> PageVerdict:
    """Return the page's head: the sentence, its intervals and peaks, and peaks of other cells."""
    measured = [view for view in built.views if view.measured]
    short = sum(view.run.status == "not_converged" for view in measured)
    failed = len(built.views) - len(measured)
    cells = f"{len(measured)} of {len(built.views)} measured"
    cells += f", {short} of them with a wider interval than requested" if short else ""
    cells += f"; {failed} failed" if failed else "; none failed"
    conclusion = closing(built.views)
    known, shown = peak_lines(built.views), peak_lines(conclusion.cells)
    others = tuple(line for line in known if line not in shown)
    peaks = (("Other peaks", others),) if others else () if shown else (("Peak", ("none is known",)),)
    rests_on = (("Measured on", (heading(built),)), *peaks, ("Cells", (cells,)))
    return PageVerdict(conclusion.sentence, basis(conclusion, built.views), rests_on)


def _cells(built: Built) -> Sequence[Part | None]:
    caption = "used: utilization, the training step's model FLOP ÷ (its time × peak); ±: half of its 95 % interval; "
    caption += "step ms: mean of the timed blocks."
    many = f"Every cell is in headline.csv; tables here have {MOST_ROWS:,} rows at most."
    return (
        caption if built.views else "The run holds no cell.",
        many if len(built.views) > MOST_ROWS else "",
        devices_sentence(built.utilization),
        measured_cells(one_a_cell(built.views, built.views)) if built.views else None,
    )


def _methods(built: Built) -> Sequence[Part | None]:
    measured = [view for view in in_order(built.views) if view.methods_denominator]
    if not measured:
        return ("No method gave a number: no cell has both a count and a peak.",)
    return (
        METHODS,
        page_table(methods_table(measured, built.work_times), methods_text(measured, built.work_times)),
    )


def _figures(built: Built, figures: Mapping[str, str]) -> Sequence[Part]:
    if not figures:
        return ("None could be drawn from these rows.",)
    return (devices_sentence(built.utilization), *(picture(name, svg, CAPTIONS) for name, svg in figures.items()))


NO_REASON = "no reason is given"

CellReason = tuple[str, str, str]
"""(subject, text, cell id)."""

_MOST_CALLS = 4


def measured_cells(views: Sequence[View]) -> PageTable:
    """Return the table at the end of a sweep with each cell's peak and FLOP per byte; `used` follows the model, since a
    telephone shows two columns."""
    ordered = in_order(views)
    scale, unit = rate_unit(ordered)
    table = cells_table(ordered, scale, unit)
    columns = [column.name for column in table.columns]
    rows = [[cell.text if isinstance(cell, StyledText) else cell for cell in row] for row in table.rows]
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
    text_columns = frozenset(("model", "precision", "why not more"))
    return PageTable(caption, tuple(columns), tuple(map(tuple, rows)), text_columns, dim)


def reasons(built: Built, names: CellNames) -> PageTable | None:
    """Return why a number is missing, or why a counter's differs from ours."""
    texts = [*failures(built.views), *_without_number(built), *_counters(built.agreement)]
    return merged_reasons("Numbers that are missing, and counters that differ", ("what", "reason"), texts, names)


def warnings(views: Sequence[View], names: CellNames) -> PageTable | None:
    """Return every warning, by its code."""
    texts = []
    for view in in_order(views):
        marks = (*view.run.warnings, *(mark for row in view.fractions for mark in row.warnings))
        not_converged = [f"not_converged: {view.run.reason}"] if view.run.status == "not_converged" else []
        for mark in (*not_converged, *marks):
            code, colon, text = mark.partition(": ")
            texts.append((code if colon else "", text if colon else mark, view.run.cell_id))
    codes = list(dict.fromkeys(code for code, *_ in texts))
    texts.sort(key=lambda text: codes.index(text[0]))
    return merged_reasons("What to know before using these numbers", ("code", "warning"), texts, names)


def merged_reasons(caption: str, heads: Cells, texts: Iterable[CellReason], names: CellNames) -> PageTable | None:
    """Return a row for each text with its cells at the end; texts that only differ in their numbers are merged."""
    rows_of = grouped(dict.fromkeys(texts), lambda text: (text[0], skeleton(text[1])))
    rows = tuple(
        (what, with_session(merged([text for _, text, _ in same])), names.listed(cell for *_, cell in same))
        for (what, _), same in rows_of.items()
    )
    columns = (*heads, "cells")
    return PageTable(caption, columns, rows, frozenset(columns)) if rows else None


def failures(views: Iterable[View]) -> Iterator[CellReason]:
    """Yield cells that were not measured."""
    for view in in_order(views):
        if not view.measured:
            status = STATUS_TEXTS.get(view.run.status, view.run.status)
            yield status, view.run.reason or NO_REASON, view.run.cell_id


def _without_number(built: Built) -> Iterator[CellReason]:
    """Yield methods, peaks, profiles and times of measured cells that have no number."""
    measured = [view for view in in_order(built.views) if view.measured]
    for view in measured:
        if not view.fractions:
            yield "utilization", "no method was requested", view.run.cell_id
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


def _counters(rows: Iterable[Agreement]) -> Iterator[CellReason]:
    """Yield the reasons that a counter gives; where its products differ from ours also its operators without a rule, if
    it names any."""
    for row in rows:
        parts = [row.reason] if row.reason else []
        if row.difference_flop:
            names, much = list(row.not_understood), "much" if row.difference_flop > 0 else "little"
            lacks = f"it has no rule for {listed(names, _MOST_CALLS)}"
            parts.append(lacks if names else f"it counts too {much} and does not say where")
        if parts:
            status = "differs" if row.status == "ok" else STATUS_TEXTS.get(row.status, row.status)
            yield f"{row.counter}, {row.phase}: {status}", "; ".join(parts), row.cell_id
