"""What the tables of report.html are made of: rows of text, names of cells, ranges, reasons.

Numbers are written by `reports.shared.numbers`. What is unknown is a dash, and why is said in a table of reasons, once,
with the cells it holds for.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from cleaning.reconcile.variants import View
from reports.shared.layout import TextTable
from reports.shared.numbers import DASH, cell_name, shared_variant

_AMOUNT = re.compile(r"<?([−+-]?)(\d+(?:\.\d+)?)(?: ([PTGMkmµ]?)(?:FLOP|B|s|Hz|W|J)(?!\w))?")
_SCALES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6}

NAMELESS = "what it is"
"""The heading of a column that has none in the terminal."""

Cells = tuple[str, ...]


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TableCell:
    """What a cell says, the number that it is sorted by (None: unknown), the colour of a bound, a share, and what is
    shown where a pointer rests on it."""

    text: str
    value: float | None = None
    colour: str = ""
    share: str = ""
    tip: str = ""


Row = tuple[str | TableCell, ...]


@dataclass(frozen=True)
class Branch:
    """Where the row of a module stands in the tree of all of them."""

    path: str
    depth: int
    settings: str


@dataclass(frozen=True)
class Table:
    """One table of a page. The first column names its row; `words` are the columns of text, the others of numbers.

    dim: indices of rows that stand back (cells that were not measured). anchor: its id, where it needs one of its own.
    branches: of each row, in a table that is a tree.
    """

    caption: str
    columns: Cells
    rows: tuple[Row, ...]
    words: frozenset[str] = frozenset()
    dim: frozenset[int] = frozenset()
    anchor: str = ""
    branches: tuple[Branch, ...] = ()
    kind: ClassVar[str] = "table"


def page_table(table: TextTable, caption: str, anchor: str = "") -> Table | None:
    """A table of the terminal as one of the page, None without rows. A column in which nothing is known is left out;
    one in which something is no number is of words."""
    texts = ([str(row[at]) for row in table.rows] for at in range(len(table.columns)))
    named = ((column.name or NAMELESS, own) for column, own in zip(table.columns, texts, strict=True))
    known = [(name, own) for name, own in named if any(text != DASH for text in own)]
    words = {
        name
        for name, own in known
        if not any(map(sort_value, own)) or not all(sort_value(text) or text == DASH for text in own)
    }
    rows = tuple(zip(*(own for _, own in known), strict=True))
    return Table(caption, tuple(name for name, _ in known), rows, frozenset(words), anchor=anchor) if rows else None


class Names:
    """What the cells of a run are called: model, batch and precision, and what else sets one apart."""

    def __init__(self, views: Sequence[View]) -> None:
        self.shared = shared_variant(views)
        self._views = {view.run.cell_id: view for view in views}
        self.measured = frozenset(view.run.cell_id for view in views if view.measured)
        self.order = {view.run.cell_id: place for place, view in enumerate(in_order(views))}

    def short(self, cell_id: str) -> str:
        """A cell in a few words."""
        return cell_name(self._views[cell_id], self.shared) if cell_id in self._views else cell_id

    def listed(self, cell_ids: Iterable[str]) -> str:
        """Cells in order, or all of them in a word."""
        found = set(cell_ids)
        if len(found) > 1 and found == set(self._views):
            return f"all {len(found)} cells"
        if len(found) > 1 and found == self.measured:
            return f"all {len(found)} measured cells"
        return ", ".join(self.short(cell) for cell in sorted(found, key=lambda cell: (self.order.get(cell, -1), cell)))


def in_order(views: Iterable[View]) -> list[View]:
    """By model (resnet18 before resnet101), batch, precision; then as they came, which in a sweep is random."""
    return sorted(views, key=lambda view: (natural(view.run.model), view.run.batch_size, view.run.precision))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers inside names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def grouped(rows: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def sort_value(cell: str | TableCell) -> str:
    """The number by which rows are sorted, "" for none: that of the cell, or that a text begins with, its prefix
    multiplied in. Of what is shown: two texts that are shown as equal are equal."""
    if isinstance(cell, TableCell):
        return "" if cell.value is None else str(cell.value)
    found = _AMOUNT.match(cell)
    if found is None:
        return ""
    sign = -1.0 if found[1] in ("−", "-") else 1.0
    value = sign * float(found[2]) * _SCALES.get(found[3] or "", 1.0)
    return f"{value:.12g}"


def span(values: Iterable[float | None], write: Callable[[float], str]) -> str:
    """One text, or from the smallest to the largest."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return DASH
    low, high = write(known[0]), write(known[-1])
    return low if low == high else f"{low} to {high}"
