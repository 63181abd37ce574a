"""Lays out text: pages of paragraphs and tables in any width, and CSV.

`page` takes a list of parts and a width, and returns text. One answer can thus be shown in a narrow terminal, a pipe or
a file. A table that does not fit wraps its headings and its columns of text. If that is not enough, columns are left
out and named below. Columns of the highest rank go first, and the last of several with one rank. A word is broken only
if it is longer than a whole line. `csv_text`, `csv_of` and `to_csv` return CSV. Nothing is printed, and nothing is
shown by colour only.
"""

import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.printable import LONGEST_TEXT, least_width, letters, printable, shortened, wrap
from results.records.rows import Record, cell_text, header
from results.store.layout import to_values
from results.text_files import csv_written


def csv_text(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return CSV: a line of names and a line for each row. Unknown is empty; text that begins like a formula gets an
    apostrophe."""
    return csv_written([names, *([cell_text(value) for value in row] for row in rows)])


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV of rows that all have the keys of the first row; "" without rows."""
    return csv_text(list(rows[0]), (row.values() for row in rows)) if rows else ""


def to_csv(rows: Sequence[Record], record: type[Record]) -> str:
    """Return CSV of records; the record's fields are the header."""
    return csv_written(itertools.chain([header(record)], to_values(rows)))


def documents(rows: Sequence[Record]) -> list[dict[str, Any]]:
    """Return records as JSON documents, with every key in each; unknown is null."""
    return [{name: getattr(row, name) for name in header(type(row))} for row in rows]


WIDTH = 100
"""Letters of a line in a pipe or a file."""

MOST_PROSE = 120
"""Letters of a line of prose, however wide the terminal: longer ones are hard to read."""

LEAST_TEXT = 14
"""Least width of a column of text that wraps, unless all its texts are shorter."""

RULE = "─"

_NUMBER = re.compile(r"[<>≥≤~±+\-−]?\s?\d[\d,.]*(e[+-]?\d+)?( ?(%|×|[kMGTPmµn]?[A-Za-z]{0,5}(/[a-z]+)?))?")
_NOTHING = ("", "–", "-", "unknown")


@dataclass(frozen=True)
class StyledText:
    """A text in a style of rich's ("bold", "#aa3377"), which only a terminal with colours shows."""

    text: str
    style: str = ""


Cell = str | StyledText
Spans = list[StyledText]
"""One line of a page."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table. right: whether it is aligned right; None: if all its texts are numbers. rank: columns of
    higher rank are left out earlier. wraps: whether texts may continue on the next line; least: its least width
    then."""

    name: str
    right: bool | None = None
    rank: int = 0
    wraps: bool = False
    least: int = LEAST_TEXT


@dataclass(frozen=True)
class TextTable:
    """Rows under named columns. rule: whether a line is below the headings. heads: whether there are headings. styles:
    one per row, "" for none."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]
    rule: bool = True
    heads: bool = True
    styles: Sequence[str] = ()

    def lines(self, width: int) -> list[Spans]:
        """Return the table in lines of at most `width` letters."""
        if not self.rows:
            return []
        columns, texts = self.columns, [list(map(_text, row)) for row in self.rows]
        distinct = [list(dict.fromkeys(own)) for own in zip(*texts, strict=True)]
        heads = [column.name if self.heads else "" for column in columns]
        widest = [max(_longest(head), *map(_longest, own)) for head, own in zip(heads, distinct, strict=True)]
        least = list(map(_least, columns, heads, distinct, widest))
        shown = list(range(len(columns)))
        while len(shown) > 1 and sum(least[index] + 1 for index in shown) - 1 > width:
            shown.remove(max(shown, key=lambda index: (columns[index].rank, index)))
        between = len(shown) - 1
        gap = 2 if sum(widest[index] for index in shown) + 2 * between <= width else 1
        widths = {index: widest[index] for index in shown}
        while sum(widths.values()) + gap * between > width:  # the widest that may be narrower
            widths[max(shown, key=lambda index: (widths[index] > least[index], widths[index]))] -= 1
        aligned = {}
        for index in shown:
            known, right = [text for text in distinct[index] if text not in _NOTHING], columns[index].right
            numbers = bool(known) and all(map(_NUMBER.fullmatch, known))
            aligned[index] = widths[index], numbers if right is None else right
        lines: list[Spans] = []
        if self.heads:
            wrapped = [wrap(heads[index], widths[index]) or [""] for index in shown]
            most = max(map(len, wrapped))
            lines += _row_lines(
                aligned, gap, [[*[""] * (most - len(own)), *own] for own in wrapped], ["bold"] * len(shown)
            )
            lines += [[StyledText(RULE * (sum(widths.values()) + gap * between))]] if self.rule else []
        broken = {index: {text: _cell_lines(text, widths[index]) for text in distinct[index]} for index in shown}
        for row, own, style in zip(self.rows, texts, self.styles or [""] * len(self.rows), strict=True):
            styles = [
                cell.style if isinstance(cell := row[index], StyledText) and cell.style else style for index in shown
            ]
            lines += _row_lines(aligned, gap, [broken[index][own[index]] for index in shown], styles)
        if lost := [column.name for index, column in enumerate(columns) if index not in shown and column.name]:
            left_out = wrap(f"(left out for want of room: {', '.join(lost)})", width, rest=" ")
            lines += [[StyledText(line, "dim")] for line in left_out]
        return lines


@dataclass(frozen=True)
class HangingIndent:
    """A label and a text to the right of it, whose further lines are indented. column: where the text begins."""

    label: str
    text: str
    column: int = 0

    def lines(self, width: int) -> list[Spans]:
        """Return the text beside the label, or below it where the label leaves it too little room."""
        width, label = min(width, MOST_PROSE), printable(self.label)
        start = max(self.column, letters(label) + ((1 if self.column else 2) if label.strip() else 0))
        if start > width // 2:
            lines = [*wrap(label.strip(), width), *wrap(self.text, width, "    ", "    ")]
        else:
            lines = wrap(self.text, width, label.ljust(start), " " * start)
        return [[StyledText(line)] for line in lines]


@dataclass(frozen=True)
class Prose:
    """A paragraph. first, rest: beginnings of its first line and of the others. most: lines that are shown, 0: all;
    whole: says where the others are."""

    text: str
    style: str = ""
    first: str = ""
    rest: str = "  "
    most: int = 0
    whole: str = ""

    def lines(self, width: int) -> list[Spans]:
        """Return the paragraph in lines of at most `width` and MOST_PROSE letters."""
        lines = wrap(self.text, min(width, MOST_PROSE), self.first, self.rest)
        if self.most and (more := len(lines) - self.most) > 0:
            lines[self.most :] = wrap(f"… ({more} more lines{self.whole})", width, self.rest, self.rest)
        return [[StyledText(line, self.style)] for line in lines]


def table_of(
    rows: Sequence[Sequence[Cell]], text_columns: Collection[int] = (), wraps: Collection[int] = ()
) -> TextTable:
    """Return a table whose first row is its headings, without a rule. text_columns: those that are aligned left; the
    others are aligned right. wraps: those whose texts may go on below. Columns are left out from the last to the
    third."""
    heads, *rest = rows
    columns = [
        TableColumn(
            name if isinstance(name, str) else name.text, index not in text_columns, max(0, index - 1), index in wraps
        )
        for index, name in enumerate(heads)
    ]
    return TextTable(columns, rest, rule=False)


Part = str | Prose | HangingIndent | TextTable
"""A str is a paragraph; an empty one is an empty line."""


def strong(text: str) -> Prose:
    """Return a paragraph in bold."""
    return Prose(text, "bold")


def page(parts: Iterable[Part], width: int = WIDTH, colour: bool = False) -> str:
    """Return the parts as text of lines that are at most `width` letters long, each with its end."""
    lines: list[Spans] = []
    for part in parts:
        if isinstance(part, str):  # lines begin below the first, two letters further in
            begin = part[: len(part) - len(part.lstrip(" "))]
            part = Prose(part, first=begin, rest=f"{begin}  ")
        if isinstance(part, Prose) and not part.text.strip():
            lines += [[]] if lines and lines[-1] else []  # one empty line between two parts, however many are asked for
        else:
            lines += part.lines(width)
    while lines and not lines[-1]:
        lines.pop()
    if colour and any(span.style for line in lines for span in line):
        return _coloured(lines)
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)


def _coloured(lines: Iterable[Spans]) -> str:
    """Return the lines with escapes for the colours that this terminal knows."""
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, width=10_000, force_terminal=True, highlight=False)
    for line in lines:
        text = Text.assemble(*((span.text, span.style) for span in line))
        text.rstrip()
        console.print(text, soft_wrap=True)
    return out.getvalue()


# --- tables ----------------------------------------------------------------------------------------------------------


def _text(cell: Cell) -> str:
    return printable(shortened(cell.text if isinstance(cell, StyledText) else cell, LONGEST_TEXT))


def _longest(text: str) -> int:
    """Return the letters of a text's longest line."""
    return max(map(letters, text.splitlines()), default=0)


def _least(column: TableColumn, head: str, texts: Sequence[str], widest: int) -> int:
    """Return a column's least width: that of the longest word of its heading, and of its texts or, if they wrap, of
    their words."""
    whole = max(map(_longest, texts))
    own = [min(whole, column.least), *map(least_width, texts)] if column.wraps else [whole]
    return min(widest, max(least_width(head), *own))


def _cell_lines(text: str, width: int) -> list[str]:
    """Return the lines of a text; those longer than `width` are wrapped, with the indent that they begin with."""
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        if letters(line) <= width:
            lines.append(line)
        else:
            start = line[: len(line) - len(line.lstrip())] if len(line) - len(line.lstrip()) < width // 2 else ""
            lines += wrap(line, width, start, start)
    return lines


def _row_lines(
    aligned: Mapping[int, tuple[int, bool]], gap: int, cells: Sequence[Sequence[str]], styles: Sequence[str]
) -> Iterator[Spans]:
    """Yield the lines of one row. aligned: column → its width, and whether it is aligned right; cells: lines of
    each."""
    for number in range(max(map(len, cells))):
        line: Spans = []
        for (width, right), lines, style in zip(aligned.values(), cells, styles, strict=True):
            text = lines[number] if number < len(lines) else ""
            space, before = " " * (width - letters(text)), " " * gap if line else ""
            before, after = (before + space, "") if right else (before, space)
            line += (
                [StyledText(before), StyledText(text, style), StyledText(after)]
                if style
                else [StyledText(before + text + after)]
            )
        yield line
