"""Which schema versions can be read, and how rows of an older one become rows of this one.

Runs on what was read, in memory: no file on the disk changes, and nothing is appended to a run of another version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from results.records.vocabulary import SCHEMA_VERSION

Migration = Callable[[str, dict[str, Any]], dict[str, Any]]


def _as_it_is(_file: str, row: dict[str, Any]) -> dict[str, Any]:
    """Columns that a later version added have a default that means what rows did before them."""
    return row


MIGRATIONS: dict[int, Migration] = dict.fromkeys(range(1, SCHEMA_VERSION), _as_it_is)
"""Version v → what turns one row of version v into one of v + 1, given the name of its file within the run
("samples.csv", "operations/….csv.gz", "manifest.json") and the row as column → text (the manifest: as JSON).

History of the schema: 1 is the first; 2 adds profiles, the works they are of, and the columns that go with
them; 3 adds the sizes that a model has of its own; 4 seals each row of runs, sessions and ceilings, headers, and the
manifest: what is older is read as it is, unsealed; 5 adds the rule of intervals and the allocator of a cell, and clock,
temperature, pressure, page faults, the system's time and the round trip between processors of a block; 6 adds that
round trip to the kernels of a ceiling; 7 adds the time of the first step.
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


def check_appendable(version: int, path: Path) -> None:
    """Raises ValueError unless the run is of this version."""
    check_readable(version, path)
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {version}, rows of version {SCHEMA_VERSION} cannot be added: start a new run"
        )
