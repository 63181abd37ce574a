"""How text is laid out: a page as wide as the place it is shown in, columns that no width cuts, and CSV.

A page is a list of parts and a function of its width, so that one answer can be laid out for a terminal of 60 columns,
a pipe or a file. A table that does not fit first wraps its headings and its columns of words, then leaves out the
columns of the highest rank and says which; where that is not enough each row becomes a list of its values. No word is
broken unless it is longer than its line by itself. Nothing is printed, and nothing is said by colour alone.
"""

import csv
import functools
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from results.printable import LONGEST_TEXT, least_width, letters, printable, shortened, wrap
from results.records.rows import Record, cell_text, header, to_values


def csv_text(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A line of names and a line for each row. Unknown is empty; text that begins like a formula has an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell_text(value) for value in row] for row in rows)
    return file.getvalue()


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """`csv_text` of rows that all have the names of the first; "" without rows."""
    return csv_text(list(rows[0]), (row.values() for row in rows)) if rows else ""


def to_csv(rows: Sequence[Record], record: type[Record]) -> str:
    """`csv_text` of records, the header being their fields."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header(record))
    writer.writerows(map(to_values, rows))
    return file.getvalue()


def documents(rows: Sequence[Record]) -> list[dict[str, Any]]:
    """Records as JSON has them, with every key in each; unknown is null."""
    return [{name: getattr(row, name) for name in header(type(row))} for row in rows]


WIDTH = 100
"""Letters of a line in a pipe or a file."""

MOST_PROSE = 120
"""Letters of a line of prose, however wide the terminal: longer ones are hard to read."""

LEAST_WORDS = 14
"""Letters that a column of words keeps at least, where its texts have so many."""

RULE = "─"

_NUMBER = re.compile(r"[<>≥≤~±+\-−]?\s?\d[\d,.]*(e[+-]?\d+)?( ?(%|×|[kMGTPmµn]?[A-Za-z]{0,5}(/[a-z]+)?))?")
_NOTHING = ("", "–", "-", "unknown")


@dataclass(frozen=True)
class Styled:
    """A text in a style of rich's ("bold", "#aa3377"), which only a terminal with colours shows."""

    text: str
    style: str = ""


Cell = str | Styled
Spans = list[Styled]
"""One line of a page."""


@dataclass(frozen=True)
class Column:
    """A column of a table. right: its texts are aligned right; None: where all of them are numbers. rank: 0 stays, the
    higher the sooner it is left out. wraps: its texts may go on below. least: letters it then keeps at least."""

    name: str
    right: bool | None = None
    rank: int = 0
    wraps: bool = False
    least: int = LEAST_WORDS


@dataclass(frozen=True)
class TextTable:
    """Rows under named columns. rule: a line below the headings. styles: one a row, "" for none."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    rule: bool = True
    heads: bool = True
    styles: Sequence[str] = ()

    def lines(self, width: int) -> list[Spans]:
        """The table in at most so many letters."""
        if not self.rows:
            return []
        shown = _Texts(self)
        plan = _plan(shown, width)
        if plan is None:
            return list(_records(shown, width))
        drawn = list(_table_lines(shown, plan))
        if lost := [column.name for at, column in enumerate(self.columns) if at not in plan.kept and column.name]:
            left_out = wrap(f"(left out for want of room: {', '.join(lost)})", width, rest=" ")
            drawn += [[Styled(line, "dim")] for line in left_out]
        return drawn


@dataclass(frozen=True)
class Hanging:
    """A label and, beside it, a text that goes on under itself. column: where the text begins."""

    label: str
    text: str
    column: int = 0

    def lines(self, width: int) -> list[Spans]:
        """The text beside the label, or below it where the label leaves it too little room."""
        width, label = min(width, MOST_PROSE), printable(self.label)
        start = max(self.column, letters(label) + ((1 if self.column else 2) if label.strip() else 0))
        if start > width // 2:
            found = [*wrap(label.strip(), width), *wrap(self.text, width, "    ", "    ")]
        else:
            found = wrap(self.text, width, label.ljust(start), " " * start)
        return [[Styled(line)] for line in found]


@dataclass(frozen=True)
class Prose:
    """A paragraph. rest: what each line but the first begins with. most: lines that are shown, 0: all; whole: where the
    others are."""

    text: str
    style: str = ""
    first: str = ""
    rest: str = "  "
    most: int = 0
    whole: str = ""

    def lines(self, width: int) -> list[Spans]:
        """The paragraph in lines no wider than prose may be."""
        found = wrap(self.text, min(width, MOST_PROSE), self.first, self.rest)
        if self.most and (more := len(found) - self.most) > 0:
            found[self.most :] = wrap(f"… ({more} more lines{self.whole})", width, self.rest, self.rest)
        return [[Styled(line, self.style)] for line in found]


def table_of(rows: Sequence[Sequence[Cell]], words: Collection[int] = (), wraps: Collection[int] = ()) -> TextTable:
    """A table whose first row is its headings, without a rule. words: columns that are aligned left; the others are
    aligned right. wraps: those whose texts may go on below. The first two columns stay; of the others the last one is
    left out first."""
    heads, *rest = rows
    columns = [
        Column(name if isinstance(name, str) else name.text, at not in words, max(0, at - 1), at in wraps)
        for at, name in enumerate(heads)
    ]
    return TextTable(columns, rest, rule=False)


Part = str | Prose | Hanging | TextTable
"""A str is a paragraph; an empty one is an empty line."""


def strong(text: str) -> Prose:
    """A paragraph in bold."""
    return Prose(text, "bold")


def page(parts: Iterable[Part], width: int = WIDTH, colour: bool = False) -> str:
    """The parts as text of lines that are at most `width` letters long, each with its end."""
    lines: list[Spans] = []
    for part in parts:
        part = _paragraph(part) if isinstance(part, str) else part
        if isinstance(part, Prose) and not part.text.strip():
            lines += [[]] if lines and lines[-1] else []  # one empty line between two parts, however many are asked for
        else:
            lines += part.lines(width)
    while lines and not lines[-1]:
        lines.pop()
    if colour and any(span.style for line in lines for span in line):
        return _coloured(lines)
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)


def _paragraph(text: str) -> Prose:
    """Its lines begin below the first, two letters further in."""
    begin = text[: len(text) - len(text.lstrip(" "))]
    return Prose(text, first=begin, rest=f"{begin}  ")


def _coloured(lines: Iterable[Spans]) -> str:
    """With the escapes of what colours this terminal knows."""
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


@dataclass(frozen=True)
class _Plan:
    """Which columns are drawn, how wide each is, and what is between two."""

    kept: tuple[int, ...]
    widths: Mapping[int, int]
    gap: int
    right: Mapping[int, bool] = field(default_factory=dict)


_WAYS = ((2, ""), (1, ""), (1, "words"), (1, "pieces"))
"""(gap, at what texts may be broken), the best first."""


def _text(cell: Cell) -> str:
    return printable(shortened(cell.text if isinstance(cell, Styled) else cell, LONGEST_TEXT))


class _Texts:
    """A table's texts as they are shown, and how wide its columns are: found once, since each way to draw it asks.

    rows: the texts. distinct: of each column, each text once. widest: letters of each column's longest line, that of
    its heading among them.
    """

    def __init__(self, table: TextTable) -> None:
        self.table = table
        self.rows = [list(map(_text, row)) for row in table.rows]
        self.distinct = [[*dict.fromkeys(row[at] for row in self.rows)] for at in range(len(table.columns))]
        self.widest = [max(map(letters, self._lines(at))) for at in range(len(table.columns))]

    def _lines(self, at: int) -> Iterator[str]:
        """The lines of a column that differ, its heading's first."""
        yield from (self.table.columns[at].name if self.table.heads else "").splitlines() or [""]
        for text in self.distinct[at]:
            yield from text.splitlines()

    @functools.cached_property
    def least(self) -> Mapping[str, Sequence[int]]:
        """At what texts may be broken, of _WAYS → letters that each column then needs."""
        every = range(len(self.table.columns))
        return {
            "": self.widest,
            "words": [min(self.widest[at], self._least(at, folded=False)) for at in every],
            "pieces": [min(self.widest[at], self._least(at, folded=True)) for at in every],
        }

    def _least(self, at: int, folded: bool) -> int:
        """The longest word of a heading, and its column's texts, or their words where they may be wrapped."""
        column, texts = self.table.columns[at], self.distinct[at]
        head = least_width(column.name) if self.table.heads else 0
        whole = max((letters(line) for text in texts for line in text.splitlines()), default=0)
        if not column.wraps:
            return max(head, whole)
        return max([head, min(whole, column.least), *(least_width(text, folded) for text in texts)])


def _plan(shown: _Texts, room: int) -> _Plan | None:
    """The most columns that fit, the widest gap first; None where not even those that have to stay do."""
    columns = shown.table.columns
    kept = tuple(range(len(columns)))
    right = {at: _is_right(shown, at) for at in kept}
    while True:
        for gap, shrunk in _WAYS:
            if (widths := _widths(shown, kept, room - gap * (len(kept) - 1), shrunk)) is not None:
                return _Plan(kept, widths, gap, right)
        ranks = [(columns[at].rank, at) for at in kept]
        rank, lost = max(ranks)
        if rank <= 0:
            return None
        kept = tuple(at for at in kept if at != lost)


def _is_right(shown: _Texts, at: int) -> bool:
    wanted = shown.table.columns[at].right
    if wanted is not None:
        return wanted
    texts = [text for text in shown.distinct[at] if text not in _NOTHING]
    return bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)


def _widths(shown: _Texts, kept: Sequence[int], room: int, shrunk: str) -> dict[int, int] | None:
    """Column → letters, together at most `room`; None where that is less than they need.

    shrunk: "" for no text broken, else "words" or "pieces" of words.
    """
    least = {at: shown.least[shrunk][at] for at in kept}
    if sum(least.values()) > room:
        return None
    widths = {at: shown.widest[at] for at in kept}
    while (over := sum(widths.values()) - room) > 0:
        at = max((at for at in kept if widths[at] > least[at]), key=lambda at: widths[at])
        others = [widths[each] for each in kept if each != at and widths[each] > least[each]]
        level = max([least[at], *(other for other in others if other < widths[at])])
        widths[at] -= max(1, min(over, widths[at] - level))
    return widths


def _table_lines(shown: _Texts, plan: _Plan) -> Iterator[Spans]:
    table = shown.table
    if table.heads:
        heads = [wrap(table.columns[at].name, plan.widths[at]) or [""] for at in plan.kept]
        most = max(map(len, heads))
        heads = [[*[""] * (most - len(lines)), *lines] for lines in heads]
        yield from _row(plan, heads, ["bold"] * len(heads))
        if table.rule:
            yield [Styled(RULE * (sum(plan.widths[at] for at in plan.kept) + plan.gap * (len(plan.kept) - 1)))]
    cell_lines = {at: {text: _cell_lines(text, plan.widths[at]) for text in shown.distinct[at]} for at in plan.kept}
    styles = table.styles or [""] * len(table.rows)
    for row, texts, style in zip(table.rows, shown.rows, styles, strict=True):
        own = [cell.style if isinstance(cell := row[at], Styled) and cell.style else style for at in plan.kept]
        yield from _row(plan, [cell_lines[at][texts[at]] for at in plan.kept], own)


def _cell_lines(text: str, width: int) -> list[str]:
    """A text as it is where it fits, with the spaces that it begins with; else at most so wide."""
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        if letters(line) <= width:
            lines.append(line)
        else:
            start = line[: len(line) - len(line.lstrip())] if len(line) - len(line.lstrip()) < width // 2 else ""
            lines += wrap(line, width, start, start)
    return lines


def _row(plan: _Plan, cells: Sequence[Sequence[str]], styles: Sequence[str]) -> Iterator[Spans]:
    for each in range(max(map(len, cells))):
        line: Spans = []
        for at, lines, style in zip(plan.kept, cells, styles, strict=True):
            text = lines[each] if each < len(lines) else ""
            space = " " * (plan.widths[at] - letters(text))
            gap = " " * plan.gap if line else ""
            before, after = (gap + space, "") if plan.right[at] else (gap, space)
            line += [Styled(before), Styled(text, style), Styled(after)] if style else [Styled(before + text + after)]
        yield line


def _records(shown: _Texts, room: int) -> Iterator[Spans]:
    """Each row as a list of its values, where a line has no room for a table."""
    columns = shown.table.columns
    column = min(room // 2, max(letters(each.name) for each in columns) + 2)
    for number, row in enumerate(shown.rows):
        if number:
            yield []
        for place, cell in zip(columns, row, strict=True):
            text = " ".join(cell.split())
            if text:
                yield from Hanging(place.name, text, column).lines(room)
