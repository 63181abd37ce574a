"""trace.html: a recorded profile in one file that needs no other and no network.

A step's timeline to scale, time by phase, module and kernel, FLOP of a step, what lies outside, and what is not known.
Asks no clock and writes nothing: the same recording gives the same bytes. All text comes through jinja2 with escaping
on; the page's policy admits the script that sorts tables, and without it everything is there.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analysis.devices.peaks import Device
from reports.shared.html import TABLES_SCRIPT, rendered
from reports.shared.html_tables import Rows, TableCell, TableRow, sort_value
from reports.shared.layout import TextTable
from reports.shared.numbers import DASH, percent, si_time
from reports.trace import timeline as trace_timeline
from reports.trace.lines import (
    completeness,
    outside_lines,
    partial_lines,
    rate_lines,
    unexplained_lines,
    utilization_line,
    verdict,
)
from reports.trace.rates import GROUPS, TimeShare, time_shares
from reports.trace.text import (
    faults_table,
    faults_words,
    heading,
    largest_table,
    largest_words,
    ratios_table,
    totals_table,
)
from reports.trace.timeline import Trace, kernel_words

TEMPLATE = "trace.html.j2"
MOST = 40
"""Rows of kernels and of modules; all of them are in the JSON document and in kernels.csv.gz."""

NAMELESS = "what it is"
"""The heading of a column that has none in the terminal."""

_LETTERS = 160
_NUMBER = re.compile(r"(?<=_)\d+$|(?:(?<=\.)|^)\d+(?=\.|$)")
"""The number that tells modules of a class apart: Conv2d_3, layers.3.attention."""
_PHASES = ("forward", "backward", "recompute", "optimizer")


@dataclass(frozen=True)
class Share:
    """A colour, what it stands for, and how wide it is, in percent."""

    colour: str
    text: str
    share: str


def to_html(trace: Trace, device: Device | None = None) -> str:
    """The whole document. device: whose peaks the rates are divided by; None: none are known."""
    from markupsafe import Markup

    kernels = trace.cleaned.kernels
    shown = trace_timeline.timeline(trace)
    whole_ns = int(kernels["time_ns"].sum())
    counts = [
        ("FLOP of convolutions and matrix products, by phase.", totals_table(trace)),
        ("Backward ÷ forward by kind of operation; the rule of thumb is 2.", ratios_table(trace)),
        (
            f"{largest_words(trace)} More than the peak of fp32: Winograd or FFT, which multiply less.",
            largest_table(trace, MOST, rated=True, device=device),
        ),
        (faults_words(trace), faults_table(trace)),
    ]
    found = {each.phase: each for each in _shares(trace, "phases_by_time")}
    colours = trace_timeline.PHASE_COLOURS
    rows = [TableRow((TableCell(_phase(each.phase)), *_time_cells(each))) for each in _shares(trace, "phases_by_time")]
    columns = ("phase", "kernels", "time", "share")
    return rendered(
        TEMPLATE,
        (TABLES_SCRIPT,),
        title=" · ".join(filter(None, ("flopledger", "trace", Path(trace.path).name, trace.device_name))),
        sentence=verdict(trace, device, shown),
        facts=[("recorded by", heading(trace)[0].partition(": ")[2]), ("it holds", heading(trace)[1])],
        timeline=Markup(trace_timeline.svg(shown)) if shown else "",  # its texts are escaped where it is drawn
        timeline_sentence=trace_timeline.sentence(shown) if shown else "",
        marks=[
            Share(trace_timeline.PHASE_COLOURS[phase], _phase(phase), "") for phase in trace_timeline.phases_of(shown)
        ]
        if shown
        else [],
        lanes_left_out=shown.lanes_left_out if shown else 0,
        gaps=_gap_rows(shown) if shown and shown.gaps else None,
        outside=[*(trace_timeline.outside_sentences(shown, whole_ns) if shown else []), *outside_lines(trace)],
        bar=[
            Share(
                colours.get(phase, colours[""]),
                f"{_phase(phase)} {percent(found[phase].time_ratio)}",
                f"{100 * found[phase].time_ratio:.3f}",
            )
            for phase in (*colours, *sorted(set(found) - set(colours)))
            if phase in found
        ],
        phases=Rows("Time of all kernels in the recording by phase, streams added up.", columns, tuple(rows), _WORDS),
        modules=_module_rows(trace),
        kernels=_kernel_rows(trace),
        counts=[_rows(table, caption) for caption, table in counts if table.rows],
        unknown=[
            f"Totals are {completeness(trace)}.",
            *partial_lines(trace),
            *unexplained_lines(trace),
            utilization_line(trace, device, shown),
            *rate_lines(trace, device),
            *trace.problems,
        ],
    )


def _phase(name: str) -> str:
    return trace_timeline.PHASE_WORDS.get(name, name)


def _shares(trace: Trace, key: str) -> list[TimeShare]:
    return time_shares(trace.cleaned.kernels, GROUPS[key])


def _module_rows(trace: Trace) -> Rows | None:
    """A row for modules alike in all but the number in their names: their time by phase. None where the recording names
    no modules."""
    shares = _shares(trace, "modules_by_time")
    names: dict[str, set[str]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for each in shares:
        alike = _NUMBER.sub("*", each.name)
        names.setdefault(alike, set()).add(each.name)
        times[alike, each.phase if each.phase in _PHASES else "other"] += each.time_s  # type: ignore[assignment]
    if not any(names):
        return None
    by_phase = {alike: [times[alike, phase] for phase in (*_PHASES, "other")] for alike in names}
    whole_s = sum(times.values())
    rows = []
    for alike in sorted(names, key=lambda alike: (-sum(by_phase[alike]), alike))[:MOST]:
        name = next(iter(names[alike])) if len(names[alike]) == 1 else alike
        own_s = sum(by_phase[alike])
        cells = [TableCell(name or "in no module"), TableCell(str(len(names[alike])), len(names[alike]))]
        cells += [_seconds(own_s), _ratio(own_s / whole_s), *map(_seconds, by_phase[alike])]
        rows.append(TableRow(tuple(cells)))
    return Rows(
        f"The {len(rows)} longest of {len(names)} modules, those alike in all but their number in one row: the time of "
        "the kernels that their own calls launched, in the whole recording.",
        ("module", "modules", "time", "share", *_PHASES, "other"),
        tuple(rows),
        _WORDS,
    )


def _kernel_rows(trace: Trace) -> Rows:
    found = _shares(trace, "kernels_by_time")
    rows = [
        TableRow(
            (
                TableCell(kernel_words(each.name, _LETTERS) or DASH),
                *_time_cells(each)[1:],
                _time_cells(each)[0],
                TableCell(_phase(each.phase)),
            ),
            tip=each.name,
        )
        for each in found[:MOST]
    ]
    return Rows(
        f"The {len(rows)} longest of {len(found)} kernels (operators, where no device was recorded), each by phase; "
        "all of them are in kernels.csv.gz.",
        ("kernel", "time", "share", "calls", "phase"),
        tuple(rows),
        _WORDS,
    )


def _gap_rows(shown: trace_timeline.Timeline) -> Rows:
    rows = [
        TableRow(
            (
                TableCell(si_time((gap.start_ns - shown.begin_ns) / 1e9)),
                _seconds(gap.time_ns / 1e9),
                _ratio(gap.time_ns / shown.length_ns),
                TableCell(kernel_words(gap.after, 90)),
                TableCell(kernel_words(gap.before, 90) if gap.before else "the end of the step"),
                TableCell(gap.host or "nothing recorded"),
            )
        )
        for gap in shown.gaps
    ]
    return Rows(
        f"The {len(rows)} longest times in which nothing ran, what ran before and after, and what was recorded of the "
        "host meanwhile.",
        ("begins at", "lasts", "share", "after", "before", "the host"),
        tuple(rows),
        _WORDS,
    )


_WORDS = frozenset(("phase", "module", "kernel", "after", "before", "the host", "begins at"))


def _time_cells(each: TimeShare) -> tuple[TableCell, ...]:
    """How many kernels, their time, their share."""
    return TableCell(str(each.kernels), each.kernels), _seconds(each.time_s), _ratio(each.time_ratio)


def _seconds(value: float) -> TableCell:
    return TableCell(si_time(value) if value else DASH, value or None)


def _ratio(value: float) -> TableCell:
    return TableCell(percent(value), value)


def _rows(table: TextTable, caption: str) -> Rows:
    """A table of the terminal as one of the page."""
    texts = [[str(row[at]) for row in table.rows] for at in range(len(table.columns))]
    numbers = [any(map(sort_value, own)) and all(sort_value(text) or text == DASH for text in own) for own in texts]
    words = [column.name for column, is_number in zip(table.columns, numbers, strict=True) if not is_number]
    rows = []
    for row in table.rows:
        cells = []
        for column, text in zip(table.columns, map(str, row), strict=True):
            number = sort_value(text) if column.name not in words else ""
            cells.append(TableCell(text, float(number) if number else None))
        rows.append(TableRow(tuple(cells)))
    names = tuple(column.name or NAMELESS for column in table.columns)
    return Rows(caption, names, tuple(rows), frozenset(word or NAMELESS for word in words))
