"""How many random edits of a run's files change a number that is rebuilt from it, with nothing said?

    python -m benchmarks.silent_damage --edits 10000
    python -m benchmarks.silent_damage --every                # each cut and each bit of every file, one cell
    python -m benchmarks.silent_damage --every --rows 3       # of a run with few rows of each kind

A small run is written: the cells of a published one with the smallest operation tables, through the store. Then one
file at a time gets one edit (a digit, a bit, a cut, lines swapped, a line doubled or taken out, fields swapped),
everything is rebuilt from it, and what came out is compared. An edit is *silent* if a number differs and no problem is
told. An edit that the reader reports already is not rebuilt. What it does not show: edits by somebody who calculates
the checksums anew.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cleaning.reconcile.run import build
from cleaning.reconcile.view import Built
from results.errors import Inconsistent
from results.records import SCHEMA_VERSION
from results.store.disk import Disk
from results.store.layout import CELL_FILES, key_of
from results.store.reading import RunData, read_operations, read_profile, read_run, scan
from results.store.store import Store

PUBLISHED = Path(__file__).parents[1] / "results/published/intel-xeon-2-cores-2026-11-22"

NUMBERS = (
    "utilization", "step_times", "work_times", "cleaned_operations", "profile_counts", "ratios", "agreement",
    "batch_laws", "post2021", "sittings",
)  # fmt: skip
"""What is rebuilt and compared: fields of Built."""


class _Unsynced(Disk):
    def fsync(self, fd: int) -> None:
        pass


def small_run(source: Path, target: Path, cells: int = 2, rows: int | None = None) -> Path:
    """The cells of a run with the smallest operation tables, written anew in today's version of the schema.

    rows: how many of each kind are kept (`_kind`), and the cells' own sessions alone; None: all.
    """
    found, data = scan(source), read_run(source)
    disk = _Unsynced()
    with Store.create(target, replace(data.manifest, schema_version=SCHEMA_VERSION), disk) as store:
        smallest = sorted(data.runs, key=lambda run: _table_bytes(source, run.trace_id))[:cells]
        for sitting in data.sittings:
            if rows is None or sitting.sitting in {run.sitting for run in smallest}:
                store.append_sitting(sitting)
        store.append_ceilings(_first(data.ceilings, rows))
        for run in smallest:
            if run.trace_id:
                store.write_operations(run.trace_id, *read_operations(source, run.trace_id))
            seals: dict[str, Any] = {}
            if run.profiled and not run.profile:
                calls = read_profile(source, run.cell_id, run.attempt)
                seals = store.write_profile(run.cell_id, 1, _first(calls, rows))
            kept = {
                file: [replace(row, attempt=1) for row in _first(_rows(found, file, record, key_of(run)), rows)]
                for file, record in CELL_FILES.items()
            }
            store.commit(replace(run, attempt=1, committed=seals), kept)
    return target


def _first(rows: Sequence[Any], most: int | None) -> list[Any]:
    """At most so many rows of each kind, in their order."""
    seen = Counter[tuple[Any, ...]]()
    kept = []
    for row in rows:
        seen[_kind(row)] += 1
        if most is None or seen[_kind(row)] <= most:
            kept.append(row)
    return kept


def _kind(row: Any) -> tuple[Any, ...]:
    """What distinguishes the rows of a file beside their numbers: the part of a block, the counter of a count."""
    return tuple(getattr(row, name, None) for name in ("part", "phase", "work", "counter", "sitting", "precision"))


def _rows(found: Any, file: str, record: Any, key: Any) -> list[Any]:
    from results.store.layout import lines_of
    from results.store.reading import _row

    version, lines = found.manifest.schema_version, lines_of(found.blocks[file].get(key, b""))
    return [_row(file, record, found.heads[file], line, version) for line in lines]


def _table_bytes(run: Path, trace_id: str) -> int:
    path = run / "operations" / f"{trace_id}.csv.gz"
    return path.stat().st_size if trace_id and path.exists() else sys.maxsize


def outcome(path: Path) -> tuple[Any, tuple[str, ...]]:
    """Every number that is rebuilt from a run, and the problems that are told; a run that is refused is a problem."""
    try:
        data = read_run(path)
        if data.problems or data.damaged:
            return (), (*data.problems, *sorted(data.damaged))
        if not data.runs:
            return (), ("no committed cell",)
        built = rebuilt(path, data)
    except (ValueError, Inconsistent, OSError) as fault:
        return (), (f"refused: {fault}",)
    numbers = {name: repr(getattr(built, name)) for name in NUMBERS}
    return numbers, (*built.problems, *(f"{file} is unsealed" for file in data.unsealed))


def rebuilt(path: Path, data: RunData | None = None) -> Built:
    """Everything that a report derives from a run. Raises ValueError or Inconsistent for one that cannot be read."""
    data = read_run(path) if data is None else data
    return build(data, lambda trace: read_operations(path, trace)[0], partial(read_profile, path))


# --- edits: (bytes, chance) → other bytes ---


def _digit(data: bytes, chance: random.Random) -> bytes:
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return _bit(data, chance)
    at = chance.choice(places)
    return data[:at] + bytes([chance.choice([byte for byte in range(48, 58) if byte != data[at]])]) + data[at + 1 :]


def _bit(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _cut_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: chance.randrange(len(lines))])


def _swap(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


def _line(data: bytes, chance: random.Random) -> bytes:
    """One line taken out, doubled, or with two of its fields swapped."""
    lines = data.splitlines(keepends=True)
    at, how = chance.randrange(len(lines)), chance.randrange(3)
    fields = lines[at].split(b",")
    if how == 2:
        first, second = chance.randrange(len(fields)), chance.randrange(len(fields))
        fields[first], fields[second] = fields[second], fields[first]
    lines[at] = (b"", lines[at] * 2, b",".join(fields))[how]
    return b"".join(lines)


EDITS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "digit": _digit,
    "bit": _bit,
    "cut": _cut,
    "cut lines": _cut_lines,
    "swap": _swap,
    "line": _line,
}


Edit = tuple[Path, str, Callable[[bytes], bytes]]
"""A file, what is done to it in words, and the doing."""


def random_edits(run: Path, edits: int, seed: int) -> Iterator[Edit]:
    """So many edits, each of a random file and kind."""
    chance, files = random.Random(seed), _files(run)
    for _ in range(edits):
        path, kind = chance.choice(files), chance.choice(list(EDITS))
        yield path, kind, lambda data, kind=kind: EDITS[kind](data, chance)  # type: ignore[misc]


def every_edit(run: Path, stride: int = 1) -> Iterator[Edit]:
    """Each file cut at every byte, and each of its bits flipped; of these, every `stride`-th."""
    cases = ((path, at, bit) for path in _files(run) for at in range(path.stat().st_size) for bit in (None, *range(8)))
    for path, at, bit in itertools.islice(cases, None, None, stride):
        if bit is None:
            yield path, f"cut at {at}", lambda data, at=at: data[:at]  # type: ignore[misc]
        else:
            yield path, f"bit at {at}.{bit}", partial(_flip, at=at, bit=bit)


def _files(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")


def _flip(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def search(run: Path, edits: Iterable[Edit]) -> tuple[list[str], Counter[str]]:
    """The silent edits, described, and how many edits there were of each kind and outcome."""
    expected = outcome(run)
    if expected[1]:
        raise ValueError(f"expected a run without problems, got {expected[1]}")
    silent, counts = [], Counter[str]()
    for number, (path, kind, edit) in enumerate(edits):
        before = path.read_bytes()
        path.write_bytes(edit(before))
        try:
            numbers, problems = outcome(run)
        finally:
            path.write_bytes(before)
        told, changed = bool(problems), numbers != expected[0]
        counts[kind.partition(" at ")[0] + (": told" if told else ": harmless")] += 1
        if changed and not told:
            silent.append(f"edit {number}: {kind} in {path.relative_to(run)}")
    return silent, counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", action="store_true", help="each cut and each bit instead, of a run of one cell")
    parser.add_argument("--stride", type=int, default=1, help="with --every: every N-th of them")
    parser.add_argument("--rows", type=int, help="how many of each kind the run keeps (default: all)")
    options = parser.parse_args(arguments)
    folder, began = Path(tempfile.mkdtemp(prefix="silent-damage-")), time.monotonic()
    try:
        run = small_run(PUBLISHED, folder / "run", 1 if options.every else 2, options.rows)
        edits = every_edit(run, options.stride) if options.every else random_edits(run, options.edits, options.seed)
        silent, counts = search(run, edits)
    finally:
        shutil.rmtree(folder)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    print(f"silent: {len(silent)} of {sum(counts.values())}, in {time.monotonic() - began:.0f} s")
    for line in silent:
        print(line)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
