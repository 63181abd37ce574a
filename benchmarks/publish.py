"""Copies a measured run to results/published, in the form in which runs are kept there.

    python -m benchmarks.publish results/runs/NAME results/published/DEVICE-DATE

Raw files are copied, with three differences. The operation tables of all traces go into operations.csv.gz and their
storages into storages.csv.gz, with a first column `trace_id`, equal rows of several traces next to each other. The rows
of runs.csv commit these two files in place of those in operations/, so that their checksums are made anew. Commands in
manifest.json name results/runs/NAME where they named a folder of the machine. Of what is derived only headline.csv and
two figures are kept: `runners.report` makes the rest again. A run with a problem is refused.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cleaning.gates.evidence import SELF_TEST_FILE
from results.records.cell import Run
from results.records.rows import SCHEMA_VERSION, Record
from results.store import layout
from results.store.manifest import write_manifest
from results.store.reading import RunData, read_run
from results.store.store import check_vacant
from results.text_files import unpack

KEPT = ("headline.csv", "figures/utilization_by_model.png", "figures/utilization_by_batch.png")
"""Derived files that a published run has."""


def publish(source: Path, target: Path) -> None:
    """Copies the run `source` to the new directory `target`. Raises ValueError for a run that is not whole, is of
    another schema version, or is a published one."""
    data = _whole(source)
    check_vacant(target)
    for original in (layout.path_of(source, file) for file in (*layout.RECORDS, SELF_TEST_FILE, *KEPT)):
        copy = target / original.relative_to(source)
        if original.name != layout.RUNS and original.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)
    if (source / layout.PROFILES).exists():
        shutil.copytree(source / layout.PROFILES, target / layout.PROFILES)
    traces = sorted({file for run in data.all_runs for file in run.committed if _is_trace(file)})
    entries = {}
    for record, packed in layout.PACKED.items():
        rows, content = _packed(source, record, traces)
        (target / packed).write_bytes(content)
        entries[packed] = layout.count_and_checksum(rows, content)
    block = layout.encode([_committing(run, entries) for run in data.all_runs])
    (target / layout.RUNS).write_bytes(
        layout.head_of(layout.RUNS) + layout.add_checksums(layout.head_of(layout.RUNS), block, b"")[0]
    )
    commands = tuple(
        re.sub(r"(?<=\s)/\S+", f"results/runs/{data.manifest.name}", each) for each in data.manifest.commands
    )
    write_manifest(target, replace(data.manifest, commands=commands))
    _whole(target, published=True)


def _whole(path: Path, published: bool = False) -> RunData:
    """A run of today's schema version without a problem. Raises ValueError."""
    data = read_run(path)
    problems = [*data.problems, *(f"{file} is damaged" for file in sorted(data.damaged))]
    if data.manifest.schema_version != SCHEMA_VERSION:
        problems.append(f"it is of schema version {data.manifest.schema_version}, not {SCHEMA_VERSION}")
    if any((path / file).exists() for file in layout.PACKED.values()) and not published:
        problems.append("it is a published run")
    if problems:
        raise ValueError(f"expected a whole run, got {path}: {'; '.join(problems)}")
    return data


def _is_trace(file: str) -> bool:
    return file.startswith(f"{layout.OPERATIONS}/")


def _packed(source: Path, record: type[Record], traces: Iterable[str]) -> tuple[int, bytes]:
    """How many rows the files of this record have together, and the content of the one file, with equal rows of several
    traces next to each other, which halves its size. traces: the files of every record."""
    top, rows = b"trace_id," + layout.head(record), list[bytes]()
    for file in traces:
        trace_id = file.removeprefix(f"{layout.OPERATIONS}/").removesuffix(".csv.gz").removesuffix(".storages")
        if layout.operation_files(trace_id).get(file) is record:
            _, *lines = layout.lines_of(unpack((source / file).read_bytes()))
            rows += [b"%s,%s\n" % (trace_id.encode(), line) for line in lines]
    rows.sort(key=lambda row: (row.split(b",", 2)[2], row))
    return len(rows), layout.compress(top + b"".join(rows))


def _committing(run: Run, entries: dict[str, list[Any]]) -> Run:
    """The run with the files of all traces in place of those of its own."""
    kept = {file: entry for file, entry in run.committed.items() if not _is_trace(file)}
    return replace(run, committed=kept if len(kept) == len(run.committed) else {**kept, **entries})


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=description)
    parser.add_argument("source", type=Path, metavar="RUN", help="the directory of a run")
    parser.add_argument("target", type=Path, metavar="DIR", help="a new directory")
    options = parser.parse_args()
    try:
        publish(options.source, options.target)
    except ValueError as fault:
        parser.error(str(fault))
    return 0


if __name__ == "__main__":
    sys.exit(main())
