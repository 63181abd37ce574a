"""Documents in Markdown: their text is a template, `templates/NAME.md.j2`, and their tables are made of rows.

Nothing is escaped but the bars of a table: what stands in these documents is our own, and names of the catalogue.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).resolve().parent / "templates"


def markdown(template: str, **values: Any) -> str:
    """The document `templates/TEMPLATE.md.j2` with these values. Raises jinja2.UndefinedError where one is missing."""
    return _environment().get_template(f"{template}.md.j2").render(**values)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Lines of a table without a line feed at the end. align: "l", "r" or "-" (unsaid) for each column."""
    words = {"-": "---", "l": "---", "r": "---:"}
    rule = [words[side] for side in align or "-" * len(header)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
