"""trace.html: a recorded profile in one file that needs no other and no network.

A step's timeline to scale, time by phase, module and kernel, FLOP of a step, what lies outside, and what is not known.
Asks no clock and writes nothing: the same recording gives the same bytes. All text comes through jinja2 with escaping
on; the page's policy admits the script that sorts tables, and without it everything is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.devices.peaks import Device
from reports.shared.html import TABLES_SCRIPT, rendered
from reports.shared.html_tables import Rows, TableCell, TableRow, sort_value
from reports.shared.layout import TextTable
from reports.shared.numbers import DASH, percent, si_time
from reports.trace import timeline as trace_timeline
from reports.trace.data import Trace, kernel_words
from reports.trace.kernel_times import GROUPS, TimeShare, time_shares
from reports.trace.lines import (
    completeness,
    outside_lines,
    partial_lines,
    rate_lines,
    unexplained_lines,
    utilization_line,
    verdict,
)
from reports.trace.text import (
    faults_table,
    faults_words,
    heading,
    largest_table,
    largest_words,
    ratios_table,
    totals_table,
)

TEMPLATE = "trace.html.j2"
MOST = 40
"""Rows of kernels and of modules; all of them are in the JSON document and in kernels.csv.gz."""

NAMELESS = "what it is"
"""The heading of a column that has none in the terminal."""

_LETTERS = 160
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
        bar=_bar(trace),
        phases=_phase_rows(trace),
        modules=_module_rows(trace),
        kernels=_kernel_rows(trace),
        counts=[_rows(table, caption) for caption, table in _count_tables(trace)],
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


def _bar(trace: Trace) -> list[Share]:
    """Time of all kernels by phase, in the order of a step."""
    found = {each.phase: each for each in _shares(trace, "phases_by_time")}
    colours = trace_timeline.PHASE_COLOURS
    return [
        Share(
            colours.get(phase, colours[""]),
            f"{_phase(phase)} {percent(found[phase].time_ratio)}",
            f"{100 * found[phase].time_ratio:.3f}",
        )
        for phase in (*colours, *sorted(set(found) - set(colours)))
        if phase in found
    ]


def _phase_rows(trace: Trace) -> Rows:
    rows = [TableRow((TableCell(_phase(each.phase)), *_time_cells(each))) for each in _shares(trace, "phases_by_time")]
    columns = ("phase", "kernels", "time", "share")
    return Rows("Time of all kernels in the recording by phase, streams added up.", columns, tuple(rows), _WORDS)


def _module_rows(trace: Trace) -> Rows | None:
    """A row a module: its time by phase. None where the recording names no modules."""
    found: dict[str, dict[str, TimeShare]] = {}
    for each in _shares(trace, "modules_by_time"):
        found.setdefault(each.name, {})[each.phase] = each
    if not any(found):
        return None
    whole_s = {name: sum(each.time_s for each in phases.values()) for name, phases in found.items()}
    ratios = {name: sum(each.time_ratio for each in phases.values()) for name, phases in found.items()}
    order = sorted(found, key=lambda name: (-whole_s[name], name))
    rows = []
    for name in order[:MOST]:
        by_phase = [found[name].get(phase) for phase in _PHASES]
        rest = whole_s[name] - sum(each.time_s for each in by_phase if each)
        cells = [TableCell(name or "in no module"), _seconds(whole_s[name]), _ratio(ratios[name])]
        cells += [_seconds(each.time_s if each else 0.0) for each in by_phase]
        rows.append(TableRow((*cells, _seconds(rest if rest > 1e-12 else 0.0))))
    return Rows(
        f"The {len(rows)} longest of {len(found)} modules: the time of the kernels that their own calls launched, in "
        "the whole recording.",
        ("module", "time", "share", *_PHASES, "other"),
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
            )
        )
        for gap in shown.gaps
    ]
    return Rows(
        f"The {len(rows)} longest times in which nothing ran, and what ran before and after.",
        ("begins at", "lasts", "share", "after", "before"),
        tuple(rows),
        _WORDS,
    )


_WORDS = frozenset(("phase", "module", "kernel", "after", "before", "begins at"))


def _time_cells(each: TimeShare) -> tuple[TableCell, ...]:
    """How many kernels, their time, their share."""
    return TableCell(str(each.kernels), each.kernels), _seconds(each.time_s), _ratio(each.time_ratio)


def _seconds(value: float) -> TableCell:
    return TableCell(si_time(value) if value else DASH, value or None)


def _ratio(value: float) -> TableCell:
    return TableCell(percent(value), value)


def _count_tables(trace: Trace) -> list[tuple[str, TextTable]]:
    """What the command prints of FLOP, with a caption each."""
    found = [
        ("FLOP of convolutions and matrix products, by phase.", totals_table(trace)),
        ("Backward ÷ forward by kind of operation; the rule of thumb is 2.", ratios_table(trace)),
        (largest_words(trace), largest_table(trace)),
        (faults_words(trace), faults_table(trace)),
    ]
    return [(caption, table) for caption, table in found if table.rows]


def _rows(table: TextTable, caption: str) -> Rows:
    """A table of the terminal as one of the page."""
    words = [column.name for at, column in enumerate(table.columns) if not _is_number(table, at)]
    rows = []
    for row in table.rows:
        cells = []
        for column, text in zip(table.columns, map(str, row), strict=True):
            number = sort_value(text) if column.name not in words else ""
            cells.append(TableCell(text, float(number) if number else None))
        rows.append(TableRow(tuple(cells)))
    names = tuple(column.name or NAMELESS for column in table.columns)
    return Rows(caption, names, tuple(rows), frozenset(word or NAMELESS for word in words))


def _is_number(table: TextTable, at: int) -> bool:
    texts = [str(row[at]) for row in table.rows]
    return any(map(sort_value, texts)) and all(sort_value(text) or text == DASH for text in texts)
