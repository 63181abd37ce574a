"""The files of `runners.ceiling --out`: ceilings.csv, which a profile can be held against, and the pictures.

A file of that name is replaced at once or not at all; the table comes first, so that a picture that fails loses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from results import disk
from results.errors import StoreFault
from results.layout import CEILINGS
from results.records import Ceiling

if TYPE_CHECKING:
    from reports.ceilings import Seen


def make(out: Path) -> None:
    """The directory, before anything is measured for it. Raises StoreFault."""
    try:
        disk.make_directory(disk.DISK, out)
    except OSError as fault:
        raise StoreFault(f"--out {out} could not be made: {fault.strerror or fault}") from fault


def write(seen: Seen, out: Path) -> None:
    """Raises StoreFault."""
    from reports import figures_ceilings, style
    from reports.tables import to_csv

    _put(out, {CEILINGS: to_csv(seen.rows, Ceiling)})
    with style.theme():
        for name, figure in figures_ceilings.figures(seen).items():
            _put(out, {f"{name}.{ending}": content for ending, content in style.render(figure).items()})


def read(path: Path) -> list[Ceiling]:
    """The rows of a ceilings.csv, of this command or of a sweep. Raises ValueError for a file that is none."""
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [Ceiling.from_row(row) for row in csv.DictReader(file)]
    except OSError as fault:
        raise ValueError(f"{path} could not be read: {fault.strerror or fault}") from fault
    except ValueError as fault:
        raise ValueError(f"{path} is no ceilings.csv: {fault}") from fault


def _put(out: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        try:
            disk.replace(disk.DISK, out / name, data)
        except OSError as fault:
            raise StoreFault(f"{out / name} could not be written: {fault.strerror or fault}") from fault
