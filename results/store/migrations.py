"""Which schema versions can be read and which can be resumed, and how rows of an older one become rows of this one.

Reading changes no file on the disk. A run that is resumed gets the columns of this version first.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from results.records.cell import Run
from results.records.vocabulary import SCHEMA_VERSION
from results.store import layout
from results.store.disk import Disk, read, replace

RESUMABLE = 6
"""The first version whose runs can be resumed: later ones only add columns to runs.csv."""

Migration = Callable[[str, dict[str, Any]], dict[str, Any]]


MIGRATIONS: dict[int, Migration] = dict.fromkeys(range(1, SCHEMA_VERSION), lambda _file, row: row)
"""Version v → what turns one row of version v into one of v + 1, given the name of its file within the run
("samples.csv", "operations/….csv.gz", "manifest.json") and the row as column → text (the manifest: as JSON). So far
nothing: columns that a later version added have a default that means what rows did before them.

History of the schema: 1 is the first; 2 adds profiles, the works they are of, and the columns that go with
them; 3 adds the sizes that a model has of its own; 4 seals each row of runs, sessions and ceilings, headers, and the
manifest: what is older is read as it is, unsealed; 5 adds the rule of intervals and the allocator of a cell, and clock,
temperature, pressure, page faults, the system's time and the round trip between processors of a block; 6 adds that
round trip to the kernels of a ceiling; 7 adds the time of the first step; 8 adds how many threads a cell's steps ran
on, and how these wait.
"""


def migrate(file: str, row: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A row of an older version as one of this version. `check_readable` says which versions can be given."""
    current = dict(row)
    for step in range(version, SCHEMA_VERSION):
        current = MIGRATIONS[step](file, current)
    return current


def check_readable(version: int, path: Path) -> None:
    """Raises ValueError for a run of a newer version, or of one that no chain of migrations reaches."""
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {version}, this program reads up to {SCHEMA_VERSION}: use a newer program"
        )
    missing = [step for step in range(version, SCHEMA_VERSION) if step not in MIGRATIONS]
    if missing:
        raise ValueError(f"{path} has schema version {version}, which this program can no longer read")


def check_resumable(version: int, path: Path) -> None:
    """Raises ValueError unless rows of this version can be added to a run of `version`."""
    check_readable(version, path)
    if version < RESUMABLE:
        raise ValueError(
            f"{path} has schema version {version}, --resume needs version {RESUMABLE} or newer: start a new run"
        )


def add_columns(path: Path, disk: Disk) -> None:
    """Adds the columns that runs.csv of an older version lacks, with their defaults and new checksums, at once.

    A row whose checksum is wrong keeps it. A process that is killed afterwards leaves a run that can be read and
    resumed. Raises ValueError for other columns, OSError if the file cannot be replaced.
    """
    top, _, body = (read(path / layout.RUNS) or b"").partition(b"\n")
    if not top or top + b"\n" == layout.head_of(layout.RUNS):
        return
    (names,) = layout.decode([top])
    if not {*names} <= {*layout.columns(layout.RUNS)}:
        raise ValueError(f"{path / layout.RUNS} was written with other columns: start a new run")
    new_top = layout.head_of(layout.RUNS).rstrip(b"\n")
    rows, before, new_before = [new_top], b"", b""
    for line in layout.lines_of(body):
        row, _, seal = line.rpartition(b",")
        intact, before = seal == layout.seal_row(top, row, before), seal
        if intact:
            run = Run.from_row(dict(zip(names, layout.decode([line])[0], strict=True)))
            row = layout.encode([run]).rstrip(b"\n")
        new_before = layout.seal_row(new_top, row, new_before) if intact else seal
        rows.append(row + b"," + new_before)
    replace(disk, path / layout.RUNS, b"\n".join([*rows, b""]))
