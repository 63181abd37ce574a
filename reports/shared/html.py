"""What every HTML page of the project is made of: sections, one style, and scripts of its own that its policy admits.

A page is one document that needs no other, no network and no script: with one, tables are sorted and filtered. All
text comes through jinja2 with escaping on, and characters that would turn the direction of what follows, or that cannot
be seen at all, are written by their numbers: names and reasons may hold anything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.shared.html_figures import Picture
from reports.shared.html_tables import Table, sort_value
from results.printable import LONGEST_TEXT, shortened

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).resolve().parent / "templates"
TEMPLATE = "report.html.j2"
TABLES_SCRIPT = "tables.js"

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Controls, marks and overrides of direction, halves of characters; not tab and line feed."""

MOST_ROWS = 1_000
"""Of one table on a page: more are searched for in a file, and a browser takes seconds for them."""


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it, in this order: sentences, tables, pictures, items of a list, blocks.

    blocks: (what it is, text that is shown as it is).
    """

    anchor: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    items: tuple[str, ...] = ()
    blocks: tuple[tuple[str, str], ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.text or self.tables or self.pictures or self.items or self.blocks)


@dataclass(frozen=True)
class PageVerdict:
    """What stands first: a sentence, what its numbers stand on, and (name, lines) of what it rests on."""

    sentence: str
    basis: str = ""
    rests_on: tuple[tuple[str, tuple[str, ...]], ...] = ()


def document(title: str, verdict: PageVerdict, sections: Sequence[Section]) -> str:
    """A report; sections without anything are left out."""
    shown = [replace(s, tables=tuple(map(_at_most, s.tables))) for s in sections if not s.empty]
    return rendered(TEMPLATE, (TABLES_SCRIPT,), title=title, verdict=verdict, sections=shown)


def _at_most(table: Table) -> Table:
    """A table of `MOST_ROWS` rows; the caption of a longer one says how many are left out."""
    if len(table.rows) <= MOST_ROWS:
        return table
    caption = f"{table.caption} (the first {MOST_ROWS:,} of {len(table.rows):,} rows)"
    return replace(table, caption=caption, rows=table.rows[:MOST_ROWS])


def rendered(template: str, scripts: Sequence[str], **values: Any) -> str:
    """A page of this template. scripts: files of ours beside it, in their order; the template says where they stand."""
    from markupsafe import Markup

    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment().get_template(template).render(script=Markup(script), digest=digest, **values)


def environment() -> jinja2.Environment:
    """Where every page's template is found, escaping on."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8")
    made = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible_text,
    )
    made.filters["sort_value"] = sort_value
    return made


def visible_text(value: Any) -> Any:
    """Text with what cannot be seen, or turns what follows, as its number: "\\u202e"; anything else as it is. Of a text
    that is longer than `LONGEST_TEXT` the middle is left out, which it says."""
    from markupsafe import Markup

    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", shortened(value, LONGEST_TEXT))
