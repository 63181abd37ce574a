"""Builds trace.html: a recorded profile in one file that needs no other file and no network.

`to_html` takes a `TraceView` (one cleaned recording) and returns the document. It shows the gaps of a step, time by
phase, module and kernel, FLOP, products outside of all phases, and unknowns. It reads no clock and writes nothing, so
that the same recording gives the same bytes. All text comes through jinja2 with escaping on. The page's policy admits
only the script that sorts tables, and the page is complete without this script.
"""

from pathlib import Path

from analysis.devices.peaks import Device
from reports.shared.html import PageTable, PageVerdict, Section, TableCell, document, page_table
from reports.shared.numbers import percent, si_time
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
    faults_text,
    heading,
    largest_table,
    largest_text,
    ratios_table,
    time_tables,
    totals_table,
)
from reports.trace.timeline import Timeline, TraceView, kernel_label, sentence, timeline

MOST = 40
"""Maximum number of rows of kernels and of modules; the JSON document and kernels.csv.gz have all rows."""

CAPTIONS = {
    "phases_by_time": "Time of all kernels in the recording by phase, streams added up.",
    "modules_by_time": f"The longest modules, by phase (at most {MOST}): the kernels that their own calls launched.",
    "kernels_by_time": f"The longest kernels, by phase (at most {MOST}; operators, where no device was recorded); all "
    "are in kernels.csv.gz.",
}

_LETTERS = 160
_TEXT_COLUMNS = frozenset(("after", "before", "the host", "begins at"))


def to_html(trace: TraceView, device: Device | None = None) -> str:
    """Return the whole document. device: whose peaks the rates are divided by; None: none are known."""
    shown = timeline(trace)
    named, holds = heading(trace)
    counts = (
        ("FLOP of convolutions and matrix products, by phase.", totals_table(trace)),
        ("Backward ÷ forward by kind of operation; the rule of thumb is 2.", ratios_table(trace)),
        (
            f"{largest_text(trace)} More than the peak of fp32: Winograd or FFT, which multiply less.",
            largest_table(trace, MOST, rated=True, device=device),
        ),
        (faults_text(trace), faults_table(trace)),
    )
    tables = [(caption, table) for caption, table in counts if table.rows]
    counted = [page_table(table, caption, f"counts-{number}") for number, (caption, table) in enumerate(tables, 1)]
    times = {
        key: page_table(table, CAPTIONS[key], f"{key.partition('_')[0]}-table")
        for key, table in time_tables(trace, MOST, _LETTERS).items()
    }
    unknown = (
        f"Totals are {completeness(trace)}.",
        *partial_lines(trace),
        *unexplained_lines(trace),
        utilization_line(trace, device, shown),
        *rate_lines(trace, device),
        *trace.problems,
    )
    sections = (
        Section(
            "step",
            "A step in time",
            (sentence(shown), _gaps_table(shown) if shown.gaps else "There is no gap in it.") if shown else (),
        ),
        Section("phases", "Time by phase", (times.get("phases_by_time"),) if times else ("No times were recorded.",)),
        Section("modules", "Time by module", (times.get("modules_by_time"),)),
        Section("kernels", "Time by kernel", (times.get("kernels_by_time"),)),
        Section("flop", "FLOP", counted or ("No product was found to count.",)),
        Section("outside", "What lies outside", (tuple(outside_lines(trace)) or "All products belong to a phase.",)),
        Section("unknown", "What is not known", (unknown,)),
    )
    rests_on = (("recorded by", (named.partition(": ")[2],)), ("it holds", (holds,)))
    title = " · ".join(filter(None, ("flopledger", "trace", Path(trace.path).name, trace.device_name)))
    return document(title, PageVerdict(verdict(trace, device, shown), "", rests_on), sections, dense=True)


def _gaps_table(shown: Timeline) -> PageTable:
    rows = tuple(
        (
            si_time((gap.start_ns - shown.begin_ns) / 1e9),
            TableCell(si_time(gap.time_ns / 1e9), gap.time_ns / 1e9),
            TableCell(percent(gap.time_ns / shown.length_ns), gap.time_ns / shown.length_ns),
            kernel_label(gap.after, 90),
            kernel_label(gap.before, 90) if gap.before else "the end of the step",
            gap.host or "nothing recorded",
        )
        for gap in shown.gaps
    )
    caption = (
        f"The {len(rows)} longest times in which nothing ran, what ran before and after, and what was recorded of the "
        "host meanwhile."
    )
    columns = ("begins at", "lasts", "share", "after", "before", "the host")
    return PageTable(caption, columns, rows, _TEXT_COLUMNS, anchor="gaps-table")
