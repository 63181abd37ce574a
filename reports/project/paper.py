"""A paper's results beside ours, as a table of at most 100 columns, CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from itertools import groupby

from analysis.project.papers import ASSUMED, BETWEEN, NOT, PAPERS, REPRODUCED, VERDICTS, PaperCell, count
from analysis.stats import amount
from reports.shared import WIDTH
from reports.shared.columns import columns

MARKS = {REPRODUCED: "=", ASSUMED: "≈", NOT: "✗"}
"""Verdict → its mark in a table."""

HEAD = ("", "result", "paper", "ours", "off by", "", "note")


def deviation(value: float | None) -> str:
    """In percent, or as a multiple where it is large."""
    if value is None:
        return "-"
    return f"× {value + 1:.1f}" if value >= 9.995 else f"{100 * value:+.1f} %".replace("-0.0", "+0.0")


def to_text(paper: str, cells: Sequence[PaperCell]) -> str:
    """The table, its notes below."""
    notes = Notes()
    rows = [row for cell in cells for row in [(cell.table, _line(cell, notes))]]
    width = columns([HEAD, *(line for _, line in rows)], left=(0, 1, 5, 6))
    head, *lines = width
    told = [f"{PAPERS[paper]}:", "what it prints, and what follows from its inputs", "", head]
    for table, group in groupby(zip((name for name, _ in rows), lines, strict=True), key=lambda pair: pair[0]):
        told += ["", table, *(line for _, line in group)]
    return "\n".join([*(line.rstrip() for line in told), "", *_legend(cells), "", *notes.told(), ""])


def to_csv(cells: Iterable[PaperCell]) -> str:
    """A row a cell; unknown is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(PaperCell)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(cell) for cell in cells)
    return text.getvalue()


def to_json(paper: str, cells: Sequence[PaperCell]) -> str:
    """One document: the paper, how many cells have which verdict, the cells."""
    document = {"paper": paper, "verdicts": count(cells), "cells": [asdict(cell) for cell in cells]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_markdown(cells: Sequence[PaperCell]) -> str:
    """A Markdown table for each table of the paper, and the notes."""
    notes, told = Notes(), []
    for table, group in groupby(cells, key=lambda cell: cell.table):
        told += [f"### {table}", "", "| | result | paper | ours | deviation | verdict | note |"]
        told += ["| --- | --- | ---: | ---: | ---: | --- | ---: |"]
        for cell in group:
            row, column, paper, ours, off, _, note = _line(cell, notes)
            told.append(f"| {row} | {column} | {paper} | {ours} | {off} | {cell.verdict} | {note} |")
        told.append("")
    return "\n".join([*told, "### Notes", "", *notes.markdown(), ""])


class Notes:
    """Assumptions and reasons, each told once, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, cell: PaperCell) -> str:
        """The numbers of a cell's notes, "" without one."""
        words = [cell.reason] if cell.verdict == NOT else cell.assumption.split(BETWEEN)
        numbers = (self._numbers.setdefault(each, len(self._numbers) + 1) for each in words if each)
        return ",".join(map(str, sorted(numbers)))

    def told(self) -> Iterator[str]:
        """The notes, wrapped."""
        for words, number in self._numbers.items():
            yield from textwrap.wrap(f"{number:>3}  {words}", WIDTH, subsequent_indent=" " * 5)

    def markdown(self) -> Iterator[str]:
        """The notes as a list."""
        for words, number in self._numbers.items():
            yield from textwrap.wrap(f"{number}. {words}", 120, subsequent_indent="   ", break_on_hyphens=False)


def _line(cell: PaperCell, notes: Notes) -> tuple[str, ...]:
    return (
        cell.row,
        cell.column,
        amount(cell.paper, cell.unit),
        amount(cell.ours, cell.unit),
        deviation(cell.deviation_ratio),
        MARKS[cell.verdict],
        notes.of(cell),
    )


def _legend(cells: Sequence[PaperCell]) -> list[str]:
    counted = count(cells)
    words = (f"{MARKS[verdict]} {verdict}: {counted[verdict]}" for verdict in VERDICTS)
    return textwrap.wrap(f"{len(cells)} cells. {'; '.join(words)}. Reproduced: within 2 %.", WIDTH)
