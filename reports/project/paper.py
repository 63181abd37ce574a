"""A paper's results beside ours, as a page, CSV and JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any

from analysis.project.ppopp2019 import ASSUMED, BETWEEN, NOT, PAPERS, REPRODUCED, VERDICTS, PaperCell, count
from analysis.stats.summary import amount
from reports.shared.layout import WIDTH, Column, Hanging, Part, TextTable, csv_text, page, strong

MARKS = {REPRODUCED: "=", ASSUMED: "≈", NOT: "✗"}
"""Verdict → its mark in a table."""

HEAD = ("", "result", "paper", "ours", "off by", "", "note")


def deviation(value: float | None) -> str:
    """In percent, or as a multiple where it is large."""
    if value is None:
        return "-"
    return f"× {value + 1:.1f}" if value >= 9.995 else f"{100 * value:+.1f} %".replace("-0.0", "+0.0")


def to_text(paper: str, cells: Sequence[PaperCell], width: int = WIDTH, colour: bool = False) -> str:
    """The verdicts, the tables, their notes below."""
    numbers: dict[str, int] = {}
    parts: list[Part] = [strong(f"{PAPERS[paper]}: what it prints, and what follows from its inputs")]
    counted = count(cells)
    words = (f"{MARKS[verdict]} {verdict}: {counted[verdict]}" for verdict in VERDICTS)
    parts.append(strong(f"{len(cells)} cells. {'; '.join(words)}. Reproduced: within 2 %."))
    lines = [
        (
            cell.table,
            (
                cell.row,
                cell.column,
                amount(cell.paper, cell.unit),
                amount(cell.ours, cell.unit),
                deviation(cell.deviation_ratio),
                MARKS[cell.verdict],
                _notes_of(cell, numbers),
            ),
        )
        for cell in cells
    ]
    for table, group in groupby(lines, key=lambda pair: pair[0]):
        rows = [line for _, line in group]
        parts += ["", strong(table), TextTable(_COLUMNS, rows, rule=False)]
    return page([*parts, "", *(Hanging(f"{number:>3}", text) for text, number in numbers.items())], width, colour)


_RANKS = {"note": 1, "off by": 2}
_COLUMNS = tuple(
    Column(name, right=at in (2, 3, 4), wraps=at < 2, rank=_RANKS.get(name, 0), least=12)
    for at, name in enumerate(HEAD)
)


def to_csv(cells: Iterable[PaperCell]) -> str:
    """A row a cell; unknown is empty."""
    return csv_text([field.name for field in fields(PaperCell)], (asdict(cell).values() for cell in cells))


def document(paper: str, cells: Sequence[PaperCell]) -> dict[str, Any]:
    """One document: the paper, how many cells have which verdict, the cells."""
    return {"paper": paper, "verdicts": count(cells), "cells": [asdict(cell) for cell in cells]}


def _notes_of(cell: PaperCell, numbers: dict[str, int]) -> str:
    """The numbers of a cell's assumptions or of its reason, "" without one. numbers: of each text, as they come."""
    words = [cell.reason] if cell.verdict == NOT else cell.assumption.split(BETWEEN)
    return ",".join(map(str, sorted(numbers.setdefault(each, len(numbers) + 1) for each in words if each)))
