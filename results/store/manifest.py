"""Reads and writes manifest.json, and decides whether two sessions may be collected into one run.

`read_manifest` and `write_manifest` convert a `Manifest`. It holds the request (name, commands, options), the version
of this program, and the peak row of the utilization. The machine is in sessions.csv, one row per session. A directory
with a manifest is a run: the file is written first, and always replaced whole. `differing` takes two `SessionRow`s and
returns the differences that forbid one run. The commit comes from git, or without git from FLOPLEDGER_COMMIT, which is
not checked.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.records.cell import SessionRow
from results.records.rows import SCHEMA_VERSION, Json, digest, json_default
from results.store.disk import DISK, Disk, faults, read, replace
from results.store.layout import CHECKSUM, SINCE, current_name
from results.version import VERSION

MANIFEST = "manifest.json"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One run's manifest. `peak_row` is a copy of the row of analysis/devices/peaks.csv, None where the device has
    none."""

    name: str
    created_at: str  # UTC, ISO 8601
    commands: tuple[str, ...] = ()  # one a session, in order
    harness_version: str = ""
    options: Json = field(default_factory=dict)  # of the sweep, as JSON
    peak_row: Json | None = None
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


_SHAPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "created_at": (str,),
    "commands": (list,),
    "harness_version": (str,),
    "options": (dict,),
    "peak_row": (dict, type(None)),
    "notes": (list,),
    "schema_version": (int,),
}
"""Field → types of its value; `checksum` is only in the file."""


def write_manifest(path: Path, manifest: Manifest, disk: Disk = DISK) -> None:
    """Write the manifest into the run directory `path`, atomically. Raises StoreFault."""
    document = {f.name: getattr(manifest, f.name) for f in dataclasses.fields(manifest)}
    document[CHECKSUM] = _checksum_of(json.loads(json.dumps(document, default=json_default)))
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, default=json_default) + "\n"
    with faults(path / MANIFEST):
        replace(disk, path / MANIFEST, text.encode("utf-8", "backslashreplace"))


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the run directory `path`, in this version's form; `schema_version` stays the file's own.

    Raises ValueError if `path` holds no run, if the file is damaged, or if its schema cannot be read here.
    """
    file = path / MANIFEST
    data = read(file) if os.path.isdir(path) else None  # isdir is also False for a path that the system refuses
    if data is None:
        absent = "is not a directory" if os.path.lexists(path) else "does not exist"
        why = f"has no {MANIFEST}" if os.path.isdir(path) else absent
        raise ValueError(f"expected the directory of a run, got {path}, which {why}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{file} is damaged: {' '.join(str(fault).split())}") from fault
    version = document.get("schema_version") if isinstance(document, Mapping) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{file} is not a manifest: it has no schema_version of 1 or more")
    if version > SCHEMA_VERSION:
        reads = f"this program reads up to {SCHEMA_VERSION}: use a newer program"
        raise ValueError(f"{path} has schema version {version}, {reads}")
    values = {name: value for name, value in document.items() if name in _SHAPES}
    for name, value in values.items():
        if not isinstance(value, _SHAPES[name]):
            raise ValueError(f"{file}: {name} is {json.dumps(value)[:60]}, expected {_SHAPES[name][0].__name__}")
    for name in ("commands", "notes"):
        values[name] = tuple(str(item) for item in values.get(name, ()))
    values["schema_version"] = version
    peak = values.get("options", {}).get("peak_tflops")
    if isinstance(peak, (int, float)) and not (0 < peak < math.inf):
        raise ValueError(f"{file}: options.peak_tflops: expected a finite number above 0, got {peak!r}")
    try:
        return Manifest(**values)
    except TypeError as fault:
        raise ValueError(f"{file} is not a manifest: {fault}") from fault


def _checksum_of(document: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest: of its sorted compact JSON without the checksum."""
    return digest({name: value for name, value in document.items() if current_name(name) != CHECKSUM})


def checksum_problem(path: Path) -> str:
    """Return why the manifest of the run directory `path` is not as it was written; "" if it is, or if its version has
    no checksum."""
    document = json.loads(read(path / MANIFEST) or b"{}")
    written = next((value for name, value in document.items() if current_name(name) == CHECKSUM), None)
    is_old = written is None and document.get("schema_version", 0) < SINCE
    if is_old or written == _checksum_of(document):
        return ""
    return f"{MANIFEST}: not as it was written: its checksum does not match"


def utc_now() -> str:
    """Return the current time in UTC, to the second, as ISO 8601 with a Z."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def driver_branch(driver: str) -> str:
    """Return the major number of a driver's version: "550" of "550.54.15"; empty where there is no driver."""
    return driver.split(".")[0]


def differing(a: SessionRow, b: SessionRow) -> list[tuple[str, str, str]]:
    """Return (field, value in a, value in b) of each difference that forbids collecting two sessions into one run.

    Device name, driver branch, torch version and peak row must be equal. The card and the host need not be.
    """
    values = (
        ("device_name", a.device_name, b.device_name),
        ("driver_branch", driver_branch(a.driver), driver_branch(b.driver)),
        ("torch_version", a.torch_version, b.torch_version),
        ("peak_row", a.peak_row, b.peak_row),
    )
    return [(name, of_a, of_b) for name, of_a, of_b in values if of_a != of_b]


def check_comparable(run: SessionRow, here: SessionRow) -> None:
    """Raise ValueError, naming each differing field and both values, if a session here must not be added to the run."""
    differences = [
        f"{name} is {of_here!r} here and {of_run!r} in the run" for name, of_run, of_here in differing(run, here)
    ]
    if differences:
        raise ValueError(f"this machine cannot go on with the run: {'; '.join(differences)}")


def harness_version(root: Path = ROOT) -> str:
    """Return this program's version, with the commit where known: "0.1.0+g1f1a4f5c0ffe" or "….dirty". Raises ValueError
    for a FLOPLEDGER_COMMIT that names no commit."""
    commit = commit_of(root)
    return f"{VERSION}+{commit}" if commit else VERSION


VARIABLE = "FLOPLEDGER_COMMIT"
DIRTY = ".dirty"


def commit_of(root: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the commit of the code at `root`: "g" and hex digits, with `.dirty` where the code was changed since; ""
    where it is unknown. Raises ValueError for a FLOPLEDGER_COMMIT that is not 7 to 40 hex digits."""
    named = environment.get(VARIABLE, "")
    if named and not re.fullmatch(r"[0-9a-f]{7,40}", named):
        raise ValueError(f"{VARIABLE}: expected 7 to 40 hex digits of a commit, got {named!r}")
    return _of_git(root) or (f"g{named[:12]}" if named else "")


def _of_git(root: Path) -> str:
    """Return the commit by git; "" where there is no git or no repository."""
    import subprocess

    if not (root / ".git").exists():  # a virtual environment may lie inside another project's checkout
        return ""
    arguments = ["describe", "--always", f"--dirty={DIRTY}", "--abbrev=12", "--exclude=*"]
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"g{answer.stdout.strip()}" if answer.stdout.strip() else ""
