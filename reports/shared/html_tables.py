"""What the tables of report.html are made of: rows of text, names of cells, ranges, reasons.

Numbers are written by `reports.shared.numbers`. What is unknown is a dash, and why is said in a table of reasons, once,
with the cells it holds for. Which tables there are is in `page_cells` and `page_counts`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

from cleaning.reconcile.view import View
from reports.shared.layout import TextTable
from reports.shared.numbers import DASH, cell_name, model_name, own_lines, session_words, shared_variant

CELL = ("model", "batch", "precision")
"""Columns that name a cell."""

_AMOUNT = re.compile(r"<?([−+-]?)(\d+(?:\.\d+)?)(?: ([PTGMkmµ]?)(?:FLOP|B|s|Hz|W|J)(?!\w))?")
_SCALES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6}

WORDS = frozenset(("model", "precision"))
"""Those of them that are text."""

NAMELESS = "what it is"
"""The heading of a column that has none in the terminal."""

Cells = tuple[str, ...]


class CellEntry(Protocol):
    """A record of one cell."""

    @property
    def cell_id(self) -> str: ...


class OfModel(Protocol):
    """A record of one model."""

    @property
    def model(self) -> str: ...


K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=CellEntry)


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
    columns = {
        column.name or NAMELESS: texts
        for column, texts in zip(table.columns, zip(*table.rows, strict=True), strict=False)
        if any(str(text) != DASH for text in texts)
    }
    words = {
        name
        for name, texts in columns.items()
        if not any(map(sort_value, map(str, texts))) or not all(sort_value(str(text)) or text == DASH for text in texts)
    }
    rows = tuple(tuple(map(str, row)) for row in zip(*columns.values(), strict=True))
    return Table(caption, tuple(columns), rows, frozenset(words), anchor=anchor) if rows else None


def merged_columns(table: Table, first: int) -> Table:
    """The table without columns, from `first` on, that have the texts of one before them: their heads share a column.

    Of a single row equal numbers may be chance: it keeps all columns.
    """
    if len(table.rows) < 2:
        return table
    alike: dict[Row, list[int]] = {}
    for index, texts in enumerate(zip(*table.rows, strict=True)):
        alike.setdefault((str(index),) if index < first else texts, []).append(index)
    heads = [[table.columns[index] for index in same] for same in alike.values()]
    columns = (" =\n".join(name.replace("\n", " ") for name in names) if names[1:] else names[0] for names in heads)
    rows = (tuple(row[same[0]] for same in alike.values()) for row in table.rows)
    return replace(table, columns=tuple(columns), rows=tuple(rows))


class Names:
    """What the cells of a run are called: model, batch and precision, and what else sets one apart."""

    def __init__(self, views: Sequence[View]) -> None:
        self.shared = shared_variant(views)
        self._views = {view.run.cell_id: view for view in views}
        self.measured = frozenset(view.run.cell_id for view in views if view.measured)
        self.order = {view.run.cell_id: place for place, view in enumerate(in_order(views))}

    def columns(self, cell_id: str) -> Cells:
        """Model (with its variant on lines below), batch, precision."""
        view = self._views[cell_id]
        below = own_lines(view, self.shared)
        return ("\n".join((model_name(view.run), *below)), str(view.run.batch_size), view.run.precision)

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

    def sorted(self, rows: Iterable[R]) -> list[R]:
        """Rows of the run's cells, in the order of the cells."""
        return sorted((row for row in rows if row.cell_id in self.order), key=lambda row: self.order[row.cell_id])


def in_order(views: Iterable[View]) -> list[View]:
    """By model (resnet18 before resnet101), batch, precision; then as they came, which in a sweep is random."""
    return sorted(views, key=lambda view: (natural(view.run.model), view.run.batch_size, view.run.precision))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers inside names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def reasons(caption: str, heads: Cells, why: Mapping[Cells, Iterable[str]], names: Names) -> Table | None:
    """A row for each reason, with its cells at the end; None without any."""
    rows = tuple((*map(session_words, key), names.listed(cells)) for key, cells in why.items())
    columns = (*heads, "cells")
    return Table(caption, columns, rows, frozenset(columns)) if rows else None


def reasons_of_models(
    caption: str, heads: Cells, why: Mapping[Cells, Iterable[str]], rows: Iterable[OfModel]
) -> Table | None:
    """A table of reasons with their models at the end of a row, "all" where they are those of all rows."""
    lines = tuple((*key, models_listed(models, rows)) for key, models in why.items())
    columns = (*heads, "models")
    return Table(caption, columns, lines, frozenset(columns)) if lines else None


def models_listed(models: Iterable[str], rows: Iterable[OfModel]) -> str:
    """Models in order, or in a word all that the rows are of."""
    found = set(models)
    if len(found) > 1 and found == {row.model for row in rows}:
        return f"all {len(found)} models"
    return ", ".join(sorted(found, key=natural))


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
