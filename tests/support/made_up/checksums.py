"""Runs whose files a test changed by hand: checksums anew, or as a version of the schema without any has them."""

import csv
import io
import json
from pathlib import Path

from results.store import layout
from results.store.manifest import MANIFEST, _checksum_of


def recompute_checksums(path: Path) -> None:
    """What a person does who changes a run and knows its format: every checksum as if the files had been written so."""
    document = json.loads((path / MANIFEST).read_text())
    document["seal" if document["schema_version"] < 9 else "checksum"] = _checksum_of(document)
    (path / MANIFEST).write_text(json.dumps(document))
    tops = {}
    for file in layout.CELL_FILES:
        if (path / file).exists():
            tops[file] = (path / file).read_bytes().split(b"\n")[0] + b"\n"
    for file in layout.COUNTED:
        if (counted := layout.path_of(path, file)).exists():
            recompute_row_checksums(counted)
    _recommit(path, tops, keep_counted=True)
    recompute_row_checksums(path / "runs.csv")


def older(path: Path, version: int = 3) -> Path:
    """The run as version 3 of the schema has it, without checksums of rows, headers and manifest."""
    document = json.loads((path / MANIFEST).read_text())
    document.pop("checksum")
    (path / MANIFEST).write_text(json.dumps({**document, "schema_version": version}))
    _recommit(path, {}, keep_counted=False)
    for file in layout.CHECKSUMMED:
        if (path / file).exists():
            lines = (path / file).read_bytes().splitlines()
            (path / file).write_bytes(b"".join(line.rpartition(b",")[0] + b"\n" for line in lines))
    return path


def _recommit(path: Path, tops: dict[str, bytes], keep_counted: bool) -> None:
    """runs.csv with checksums of what the files hold now. tops: file → its header, where the checksum is of both."""
    rows = list(csv.reader(io.StringIO((path / "runs.csv").read_text())))
    place = {name: at for at, name in enumerate(rows[0])}
    for row in rows[1:]:
        start = f"{row[place['cell_id']]},{row[place['attempt']]},".encode()
        committed = json.loads(row[place["committed"]] or "{}")
        for file in list(committed):
            if layout.current_name(file) in layout.COUNTED:
                lines = (path / file).read_bytes().splitlines(keepends=True)
                whole = b"".join(lines[: committed[file][0] + 1])
                committed[file][1] = layout.checksum(whole)
                if not keep_counted:
                    del committed[file]
            elif file in layout.CELL_FILES and committed[file][0]:
                mine = [line for line in (path / file).read_bytes().splitlines(keepends=True) if line.startswith(start)]
                committed[file] = layout.count_and_checksum(len(mine), tops.get(file, b"") + b"".join(mine))
        row[place["committed"]] = json.dumps(committed, separators=(",", ":"), sort_keys=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    (path / "runs.csv").write_text(text.getvalue())


def recompute_row_checksums(path: Path) -> None:
    """Every row of one file with its checksum anew, whatever stands in it."""
    top, *lines = path.read_bytes().split(b"\n")[:-1]
    before, whole = b"", top + b"\n"
    for line in lines:
        row = line.rpartition(b",")[0]
        before = layout.row_checksum(top, row, before)
        whole += row + b"," + before + b"\n"
    path.write_bytes(whole)
