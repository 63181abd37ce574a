"""The page of recordings of many ranks: what a step is spent on, who waits for whom, in one file that needs no network.

The tables are those of the terminal, of all ranks. Asks no clock: the same recordings give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from analysis.ranks.summary import RankRow, RanksReport
from reports.shared.html import PageVerdict, Picture, Section, data_uri, document, natural_size
from reports.shared.html_tables import Table
from reports.shared.layout import TextTable
from reports.shared.numbers import DASH, percent
from reports.trace.ranks import (
    collectives_table,
    headings,
    notes,
    ranks_table,
    waits_table,
)

MOST_BARS = 64
"""Ranks in the picture; tables have all."""

PARTS = {
    "computes alone": "#0072b2",
    "computes and communicates": "#56b4e9",
    "communicates alone": "#d55e00",
    "copies": "#cc79a7",
    "idle": "#d9d9d9",
}
"""What a rank's step is made of → its colour, in the order in which it is drawn."""

WIDTH_PT, LABEL_PT, ROW_PT, LEGEND_PT = 340.0, 48.0, 12.0, 36.0
"""Of the picture: narrow enough that its letters can be read on a telephone."""


def ranks_html(report: RanksReport) -> str:
    """The whole document."""
    named, *said = headings(report)
    many = len(report.ranks)
    sections = (
        Section(
            "ranks",
            "Ranks",
            tuple(said[1:]),
            (_table(ranks_table(report.ranks, many), _SHARES),),
            (_picture(report.ranks),),
        ),
        Section("waits", "Waits", (), _tables(waits_table(report, None), _WAITS)),
        Section("collectives", "Collectives", (), _tables(collectives_table(report.collectives), _MOVED)),
        Section("notes", "What is not known", items=tuple(notes(report))),
    )
    hosts = tuple(dict.fromkeys(row.host for row in report.ranks if row.host))
    devices = tuple(dict.fromkeys(row.device_name for row in report.ranks if row.device_name))
    rests_on = tuple((name, lines) for name, lines in (("hosts", hosts), ("devices", devices)) if lines)
    return document(f"flopledger · trace · {named}", PageVerdict(said[0], named, rests_on), sections)


_SHARES = "A step of each rank on average, and its parts as shares of it; overlapped is a part of compute"
_WAITS = "Who waits for whom in collectives, of a step, the longest first"
_MOVED = "Collectives of a step, mean of the ranks that have them"


def _tables(table: TextTable, caption: str) -> tuple[Table, ...]:
    """None for a table without rows."""
    return (_table(table, caption),) if table.rows else ()


def _table(table: TextTable, caption: str) -> Table:
    """A table of the terminal as one of the page; a column in which nothing is known is left out."""
    kept = [at for at in range(len(table.columns)) if any(str(row[at]) != DASH for row in table.rows)]
    names = [table.columns[at].name for at in kept]
    words = frozenset(name for name in names if name == "kind")
    return Table(caption, tuple(names), tuple(tuple(str(row[at]) for at in kept) for row in table.rows), words)


def _parts(row: RankRow) -> tuple[float, ...]:
    """Shares of a rank's step, as PARTS has them."""
    time = row.time
    alone_s = max(time.compute_s - time.overlapped_s, 0.0)
    seconds = (alone_s, time.overlapped_s, time.exposed_s, time.memory_s, time.idle_s)
    return tuple(each / time.window_s for each in seconds)


def _picture(rows: Sequence[RankRow]) -> Picture:
    """A bar a rank: what its step is spent on."""
    shown = rows[:MOST_BARS]
    height = LEGEND_PT + ROW_PT * len(shown)
    drawn = [_legend(), *(_bar(row, LEGEND_PT + ROW_PT * at) for at, row in enumerate(shown))]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PT}pt" height="{height}pt" '
        f'viewBox="0 0 {WIDTH_PT} {height}" font-family="sans-serif" font-size="8">{"".join(drawn)}</svg>'
    )
    left = f"; the first {MOST_BARS} of {len(rows)} ranks" if len(rows) > MOST_BARS else ""
    caption = f"What a step of each rank is spent on{left}"
    alt = (
        f"{caption}: a bar for each rank, its parts from left to right: {', '.join(PARTS)}. The table has the numbers."
    )
    return Picture("ranks", caption, "ranks.json", alt, data_uri(svg), *natural_size(svg))


def _legend() -> str:
    """The colours, in two lines."""
    places = ((0.0, 9.0), (100.0, 9.0), (0.0, 23.0), (100.0, 23.0), (150.0, 23.0))
    return "".join(
        f'<rect x="{x}" y="{y - 7}" width="8" height="8" fill="{colour}"/>'
        f'<text x="{x + 11}" y="{y}">{escape(word)}</text>'
        for (word, colour), (x, y) in zip(PARTS.items(), places, strict=True)
    )


def _bar(row: RankRow, top: float) -> str:
    per_share = WIDTH_PT - LABEL_PT
    found = [f'<text x="0" y="{top + 8.5}">rank {row.rank}</text>']
    left = LABEL_PT
    for (word, colour), share in zip(PARTS.items(), _parts(row), strict=True):
        width = share * per_share
        tip = f"rank {row.rank} {word}: {percent(share)}"
        found.append(
            f'<g><title>{escape(tip)}</title><rect x="{left:.2f}" y="{top + 1}" width="{width:.2f}" '
            f'height="{ROW_PT - 2}" fill="{colour}"/></g>'
        )
        left += width
    return "".join(found)
