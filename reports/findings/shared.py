"""Words and tables that every section of the findings uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.shared import markdown_table, shown_interval
from results.records import Utilization

SETTLED, IN_PART, OPEN = "settled", "in part", "open"

MOST_CELLS = 6
"""Cells that a sentence names one by one; of more it names the first and says where the others are."""


@dataclass(frozen=True)
class Section:
    """title: the question; state: settled, in part, open; answer: in a line or two; body: paragraphs of Markdown."""

    title: str
    state: str
    answer: str
    body: tuple[str, ...] = ()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return markdown_table(header, ([_one_line(text) for text in row] for row in rows))


def cells(ids: Iterable[str]) -> str:
    """Cell ids in a text."""
    return ", ".join(f"`{cell_id}`" for cell_id in dict.fromkeys(ids))


def named(ids: Iterable[str], what: str = "cells") -> str:
    """Cell ids at the end of a claim; of many how many there are, which the table below it lists."""
    unique = list(dict.fromkeys(ids))
    return f"[{cells(unique)}]" if len(unique) <= MOST_CELLS else f"[the {len(unique)} {what} of the table]"


def link(words: str, path: str) -> str:
    """A link."""
    return f"[{words}]({path})"


def picture(words: str, path: str) -> str:
    """A picture with the words that stand for it."""
    return f"![{words}]({path})"


def share(row: Utilization) -> str:
    """A fraction with its interval, in percent: "9.7 (9.4 to 10.0)"."""
    value = 100 * (row.utilization_ratio or 0.0)
    low, high = shown_interval(row)
    if low is None:
        return f"{value:.3g}"
    return f"{value:.3g} ({100 * low:.3g} to {'∞' if high is None else f'{100 * high:.3g}'})"


def times(ratio: float) -> str:
    """A ratio of counts: "1" exactly, else with as many digits as tell it from 1."""
    return "1" if ratio == 1 else f"{ratio:.4g}" if abs(ratio - 1) >= 1e-3 else f"{ratio:.7g}"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
