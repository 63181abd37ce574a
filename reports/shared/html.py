"""Builds HTML pages: `document` takes sections of parts, and returns one page with its own style and scripts.

A page needs no other file, no network and no script. With scripts, tables can be sorted and filtered; the page's policy
admits only its own. All text comes through jinja2 with escaping on. Characters that reverse the direction of text, or
are invisible, are written by their numbers, since names and reasons may contain anything. Each figure is an image of
its own, so that identifiers of two figures never meet and nothing in a figure can run. A text describes the figure for
those who cannot see it. A dash means unknown; a table of reasons says why, with the cells for which a reason applies.
"""

from __future__ import annotations

import base64
import hashlib
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cleaning.reconcile.derived import View
from reports.shared.layout import TextTable
from reports.shared.numbers import DASH, cell_name, shared_variant
from results.printable import LONGEST_TEXT, printable, shortened

if TYPE_CHECKING:
    from markupsafe import Markup


_AMOUNT = re.compile(r"<?([−+-]?)(\d+(?:\.\d+)?)(?: ([PTGMkmµ]?)(?:FLOP|B|s|Hz|W|J)(?!\w))?")
_SCALES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6}

NAMELESS = "what it is"
"""Heading on the page for a column that has no heading in the terminal."""

Cells = tuple[str, ...]


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TableCell:
    """One cell of a table.

    value: the number by which the table sorts the cell; None: unknown. colour: that of the swatch before the text.
    share: a small text after it. tip: the text that a pointer shows.
    """

    text: str
    value: float | None = None
    colour: str = ""
    share: str = ""
    tip: str = ""


Row = tuple[str | TableCell, ...]


@dataclass(frozen=True)
class Branch:
    """The position of a module's row in the tree."""

    path: str
    depth: int
    settings: str


@dataclass(frozen=True)
class PageTable:
    """One table of a page. The first column names its row; `text_columns` have text, the others numbers.

    dim: indices of rows that are shown dim (cells that were not measured). anchor: its id, if it needs one of its own.
    branches: of each row, in a table that is a tree.
    """

    caption: str
    columns: Cells
    rows: tuple[Row, ...]
    text_columns: frozenset[str] = frozenset()
    dim: frozenset[int] = frozenset()
    anchor: str = ""
    branches: tuple[Branch, ...] = ()
    kind: ClassVar[str] = "table"


def page_table(table: TextTable, caption: str, anchor: str = "") -> PageTable | None:
    """Convert a table of the terminal for a page; None without rows. A column in which all is unknown is left out; one
    with something other than numbers is text, unless it is aligned right."""
    texts = ([str(row[index]) for row in table.rows] for index in range(len(table.columns)))
    named = ((column.name or NAMELESS, own) for column, own in zip(table.columns, texts, strict=True))
    known = [(name, own) for name, own in named if any(text != DASH for text in own)]
    right = {column.name for column in table.columns if column.right}
    text_columns = {
        name
        for name, own in known
        if name not in right
        and (not any(map(sort_value, own)) or not all(sort_value(text) or text == DASH for text in own))
    }
    rows = tuple(zip(*(own for _, own in known), strict=True))
    return (
        PageTable(caption, tuple(name for name, _ in known), rows, frozenset(text_columns), anchor=anchor)
        if rows
        else None
    )


class CellNames:
    """Names of a run's cells: model, batch and precision, and their distinctions."""

    def __init__(self, views: Sequence[View]) -> None:
        self.shared = shared_variant(views)
        self._views = {view.run.cell_id: view for view in views}
        self.measured = frozenset(view.run.cell_id for view in views if view.measured)
        self.order = {view.run.cell_id: index for index, view in enumerate(in_order(views))}

    def short(self, cell_id: str) -> str:
        """Name a cell in a few words."""
        return cell_name(self._views[cell_id], self.shared) if cell_id in self._views else cell_id

    def listed(self, cell_ids: Iterable[str]) -> str:
        """List cells in order, or say that it is all of them."""
        cells = set(cell_ids)
        if len(cells) > 1 and cells == set(self._views):
            return f"all {len(cells)} cells"
        if len(cells) > 1 and cells == self.measured:
            return f"all {len(cells)} measured cells"
        return ", ".join(self.short(cell) for cell in sorted(cells, key=lambda cell: (self.order.get(cell, -1), cell)))


def in_order(views: Iterable[View]) -> list[View]:
    """Sort by model (resnet18 before resnet101), batch, precision; then as they came, which in a sweep is random."""
    return sorted(views, key=lambda view: (natural(view.run.model), view.run.batch_size, view.run.precision))


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers inside names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def grouped(rows: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def sort_value(cell: str | TableCell) -> str:
    """Return the number by which rows are sorted, "" for none: the cell's, or the one with which the text begins, with
    its prefix. It follows the shown text: two equal texts are equal."""
    if isinstance(cell, TableCell):
        return "" if cell.value is None else str(cell.value)
    amount = _AMOUNT.match(cell)
    if amount is None:
        return ""
    sign = -1.0 if amount[1] in ("−", "-") else 1.0
    value = sign * float(amount[2]) * _SCALES.get(amount[3] or "", 1.0)
    return f"{value:.12g}"


def span(values: Iterable[float | None], write: Callable[[float], str]) -> str:
    """Return one text, or "from the smallest to the largest"."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return DASH
    low, high = write(known[0]), write(known[-1])
    return low if low == high else f"{low} to {high}"


_SIZE = re.compile(r'<svg[^>]*?\swidth="([\d.]+)pt"[^>]*?\sheight="([\d.]+)pt"')
_PX_PER_PT = 4 / 3
_AS_THEY_ARE = ' "/:;=,()!*@?$'
"""Characters that are not escaped in a data URI inside an HTML attribute in single quotes."""


@dataclass(frozen=True)
class FigureCaption:
    """The texts of a figure and of its further pages. caption: what to see. file: from which it is drawn. shows: marks,
    axes and panels, for those who cannot see it."""

    caption: str
    file: str
    shows: str


@dataclass(frozen=True)
class Picture:
    """One figure. alt: what it shows; uri: its content; width, height: its natural size in CSS pixels, None:
    unknown."""

    name: str
    caption: str
    file: str
    alt: str
    uri: Markup
    width: int | None
    height: int | None
    kind: ClassVar[str] = "picture"


def picture(name: str, svg: str, captions: Mapping[str, FigureCaption]) -> Picture:
    """Return a figure by its file's name. captions: by the names of figures' first pages.

    Its URI is for single quotes, without the SVG's prologue, which names a DTD on the network.
    """
    from markupsafe import Markup

    base = max((base for base in captions if f"{name}_".startswith(f"{base}_")), key=len, default="")
    title = name.replace("_", " ")
    about = captions.get(base, FigureCaption(title, "derived files", f"{title.capitalize()}."))
    page = name.removeprefix(base).strip("_").replace("_", " ") if base else ""
    alt = f"{about.caption}{f' ({page})' if page else ''}. {about.shows}"
    size = _SIZE.search(svg)
    width, height = (round(float(points) * _PX_PER_PT) for points in size.groups()) if size else (None, None)
    body = " ".join(svg[max(svg.find("<svg"), 0) :].split())
    uri = Markup("data:image/svg+xml," + urllib.parse.quote(body, safe=_AS_THEY_ARE))  # nothing is left to escape
    return Picture(name, about.caption, about.file, alt, uri, width, height)


TEMPLATES = Path(__file__).resolve().parent / "templates"
TEMPLATE = "report.html.j2"
TABLES_SCRIPT = "tables.js"

MOST_ROWS = 1_000
"""Maximum number of rows of one table on a page: a browser takes seconds for more, and a file is better to search."""


@dataclass(frozen=True)
class PageBlock:
    """A text that is shown literally, and its label."""

    label: str
    text: str
    kind: ClassVar[str] = "block"


Part = str | tuple[str, ...] | PageTable | Picture | PageBlock
"""Content of a section: a sentence, the items of a list, or one of these classes; empty ones are left out."""


@dataclass(frozen=True)
class Section:
    """A heading with its content. folded: whether only the heading shows until it is opened."""

    anchor: str
    title: str
    parts: Sequence[Part | None]
    folded: bool = False


@dataclass(frozen=True)
class PageVerdict:
    """The head of a page: a sentence, the basis of its numbers, and (name, lines) of further facts."""

    sentence: str
    basis: str = ""
    rests_on: Sequence[tuple[str, tuple[str, ...]]] = ()


def document(
    title: str, verdict: PageVerdict, sections: Sequence[Section], *, dense: bool = False, more: Sequence[str] = ()
) -> str:
    """Return a page; empty sections are left out.

    dense: whether wide tables of numbers have small letters. more: scripts of ours after the one that sorts tables.
    """
    import jinja2
    from markupsafe import Markup

    shown = [replace(section, parts=[_at_most(part) for part in section.parts if part]) for section in sections]
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in (TABLES_SCRIPT, *more))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible_text,
    )
    environment.filters["sort_value"] = sort_value
    return environment.get_template(TEMPLATE).render(
        title=title,
        verdict=verdict,
        sections=[section for section in shown if section.parts],
        dense=dense,
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _at_most(part: Part) -> Part:
    """Return a table of at most `MOST_ROWS` rows, with the number of the others in its caption. A tree is whole."""
    if not isinstance(part, PageTable) or part.branches or len(part.rows) <= MOST_ROWS:
        return part
    caption = f"{part.caption} (the first {MOST_ROWS:,} of {len(part.rows):,} rows)"
    return replace(part, caption=caption, rows=part.rows[:MOST_ROWS])


def visible_text(value: Any) -> Any:
    """Return text with invisible characters, and those that reverse what follows, as their numbers: "\\u202e". The
    middle of a text longer than `LONGEST_TEXT` is left out, with a note."""
    from markupsafe import Markup

    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(shortened(value, LONGEST_TEXT))
