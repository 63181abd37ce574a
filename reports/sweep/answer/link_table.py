"""A step's collectives beside the rate at which their link was measured, as text: a row for each rank and kind."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.parallel.link_use import LinkUse
from reports.shared.layout import Column, Part, TextTable, page, strong
from reports.shared.numbers import DASH, percent, si, si_time

MEANING = (
    "share: bytes/s that each rank sends at least, of those measured alone at the nearest size; waiting for other "
    "ranks is in the time."
)


def links_text(rows: Sequence[LinkUse], width: int, colour: bool) -> str:
    """The table, what a share means, and why a row has none."""
    columns = (
        Column("model", wraps=True, least=14), Column("batch", right=True), Column("plan"), Column("rank", right=True),
        Column("collective"), Column("calls", right=True), Column("bytes", right=True), Column("time", right=True),
        Column("reached", right=True), Column("measured", right=True), Column("share", right=True),
    )  # fmt: skip
    parts: list[Part] = [
        strong("Collectives of a recorded step, and the link"),
        "",
        TextTable(columns, list(map(_cells, rows))),
    ]
    parts += ["", MEANING, *dict.fromkeys(row.reason for row in rows if row.reason)]
    return page(parts, width, colour)


def _cells(row: LinkUse) -> list[str]:
    return [
        row.model,
        str(row.batch_size),
        row.parallel,
        str(row.rank),
        row.kind,
        f"{row.calls:g}",
        DASH if row.given_bytes is None else si(row.given_bytes, "B"),
        si_time(row.time_s),
        DASH if row.link_bytes_per_s is None else si(row.link_bytes_per_s, "B/s"),
        DASH if row.measured_link_bytes_per_s is None else si(row.measured_link_bytes_per_s, "B/s"),
        DASH if row.link_ratio is None else percent(row.link_ratio),
    ]
