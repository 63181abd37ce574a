"""The files of `runners.ceiling --out`: ceilings.csv, which a profile can be compared with, and the pictures.

A file of that name is replaced at once or not at all; the table comes first, so that a picture that fails loses none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from results.records.rows import read_rows
from results.records.samples import Ceiling
from results.store.layout import CEILINGS
from results.text_files import csv_table, read_text
from runners.cli.output import put

if TYPE_CHECKING:
    from reports.ceiling.text import CeilingAnswer


def write(seen: CeilingAnswer, out: Path) -> None:
    """Raises StoreFault."""
    from reports.ceiling import figures as ceiling_figures
    from reports.shared import figure_style
    from reports.sweep.table import to_csv

    put(out / CEILINGS, to_csv(seen.rows, Ceiling))
    for name, content in figure_style.render_all(lambda: ceiling_figures.figures(seen)).items():
        put(out / name, content)


def read(path: Path) -> list[Ceiling]:
    """The rows of a ceilings.csv, of this command or of a sweep. Raises ValueError for a file that is none."""
    try:
        return read_rows(Ceiling, *csv_table(read_text(path)))
    except OSError as fault:
        raise ValueError(f"{path} could not be read: {fault.strerror or fault}") from fault
    except ValueError as fault:
        raise ValueError(f"{path} is no ceilings.csv: {fault}") from fault
