"""The directory of a characterization: its files of rows, read and written; and what is derived from them.

Each file is replaced at once or not at all, after every recording, `recordings.csv` last: what was recorded before a
kill is whole. Derived tables and figures can be deleted and made again.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from results.records.characterization import FILES, Characterization
from results.text_files import csv_rows, read_text
from runners.cli.exits import Mistake
from runners.cli.output_files import put, reserve

if TYPE_CHECKING:
    from reports.characterize.text import CharacterizeAnswer

FIRST = next(iter(FILES))
FIGURES = "figures"
PAGE = "characterize.txt"
DATA = "characterize.json"


def reserve_new(out: Path) -> None:
    """Make sure that rows can be put there, and that none are there already. Raises Mistake, StoreFault."""
    if (out / FIRST).exists():
        raise Mistake(f"--out: expected a directory without {FIRST}, got {out}; report it without --models")
    if out.exists() and not out.is_dir():
        raise Mistake(f"--out: expected a directory, got the file {out}")
    reserve(out / FIRST)


def write_rows(data: Characterization, out: Path) -> None:
    """The files of rows. Raises StoreFault."""
    from reports.sweep.table import to_csv

    for name, rows in reversed(data.rows().items()):
        text = to_csv(rows, FILES[name]).encode()
        put(out / name, gzip.compress(text, mtime=0) if name.endswith(".gz") else text)


def read_rows(directory: Path) -> Characterization:
    """The rows that are there. Raises Mistake for a directory that holds no characterization, or a torn one."""
    if not directory.is_dir():
        raise Mistake(f"expected a directory with {FIRST}, got {directory}, which is none")
    if not (directory / FIRST).is_file():
        raise Mistake(f"expected a directory with {FIRST}, got {directory}, which has none")
    found = []
    for name, record in FILES.items():
        path = directory / name
        try:
            found.append(tuple(record.from_row(row) for row in csv_rows(read_text(path))))
        except (OSError, ValueError) as fault:
            cause = getattr(fault, "strerror", None) or fault
            raise Mistake(f"expected {path} as runners.characterize writes it, got: {cause}") from fault
    return Characterization(*found)  # type: ignore[arg-type]


def write_report(seen: CharacterizeAnswer, out: Path) -> None:
    """The derived tables, the report, and the figures last, so that a picture that fails loses no table."""
    import json

    from reports.characterize import data as characterize_data
    from reports.characterize import figures_mix
    from reports.characterize.sections import to_text
    from reports.shared import figure_style

    for name, text in characterize_data.tables(seen).items():
        put(out / name, text)
    put(out / DATA, json.dumps(characterize_data.document(seen), indent=1, allow_nan=False) + "\n")
    put(out / PAGE, to_text(seen))
    for name, content in figure_style.render_all(lambda: figures_mix.figures(seen)).items():
        put(out / FIGURES / name, content)
