"""The matrix lies × gates over two runs: a made-up one of a GPU without a fault, and published cells of a CPU.

    python -m tests.support.lies.lie_matrix --write        # docs/lies.md and tests/lies_uncaught.csv, some minutes
    python -m tests.support.lies.lie_matrix --files runs   # what becomes of lies about one file

A lie that no gate catches stands in lies_uncaught.csv with the reason; a row of the csv without one is a gap.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from results.records import Sample
from tests.support.lies import lie_rows, lies, unsealed_lies
from tests.support.lies.lie_rows import Rows
from tests.support.made_up import made_up_evidence

ROOT = Path(__file__).parents[3]
UNCAUGHT, PAGE = ROOT / "tests" / "lies_uncaught.csv", ROOT / "docs" / "lies.md"
PUBLISHED = ROOT / "results" / "published" / "intel-xeon-2-cores-2026-11-22"
ROUND_TRIP_S = 9e-8
"""Of a cache line, which runs of that version do not have: put into the measured blocks, so that it is lied about."""

MODEL = "alexnet"
"""Of the published run: one model at three batches, two of them not converged, with profiles."""

BASES = ("gpu", "cpu")
COLUMNS = ("base", "file", "field", "lies", "class", "why")

CLASSES: Mapping[str, str] = {
    "default": "an option that is not there means its default, and the cells have that default",
    "words": "text that somebody chose or wrote, from which nothing is calculated",
    "recorded once": "a fact of a machine, a counter or a recorder that nothing else in the run repeats",
    "not used": "no number of the run is made of it, and no law bounds it",
    "no product": "of a call or storage of which no FLOP and no size depends",
    "within noise": "less than what blocks, polls or calls of one kernel differ by",
    "equal": "rows or sizes change places that give the same FLOP",
}
"""Why no gate can catch a lie, in a word → what the word means."""

Place = tuple[str, str, str]
"""base, file, field."""


@dataclass(frozen=True)
class Answer:
    """One lie, and the gate that catches it; empty: none does."""

    base: str
    file: str
    target: str
    field: str
    kind: str
    scope: str
    gate: str

    @property
    def place(self) -> Place:
        return self.base, self.file, self.field

    @property
    def word(self) -> str:
        """The lie within its field."""
        return ":".join(filter(None, (self.target, self.kind, self.scope)))


def gpu(path: Path) -> Rows:
    """The rows of the made-up run, which is written to `path` first."""
    return lie_rows.load(made_up_evidence.write(path))


def cpu() -> Rows:
    """The rows of some published cells; the manifest asks for those alone."""
    from results.store.store import read_run

    runs = [run for run in read_run(PUBLISHED).runs if run.model == MODEL and run.layout == "channels_first"]
    rows = lie_rows.load(PUBLISHED, [run.cell_id for run in runs if run.precision == "fp32"])
    rows = replace(rows, samples=[_placed(row) for row in rows.samples])
    earlier = lie_rows.options_of(PUBLISHED)["earlier"][0]
    return replace(rows, manifest=replace(rows.manifest, options={**earlier, "models": [MODEL]}))


def _placed(row: Sample) -> Sample:
    """The block with a time of a cache line, if it is a measured one."""
    return replace(row, core_round_trip_s=ROUND_TRIP_S) if row.part == "measure" and not row.work else row


def answers(base: str, rows: Rows, files: Iterable[str] = (), scopes: Iterable[str] = ()) -> Iterator[Answer]:
    """Every lie about a run, of some files or scopes, and what becomes of it."""
    before = lie_rows.failed(rows)
    for lie in lies.lies(rows, files):
        if not scopes or lie.scope in scopes:
            gate = lie_rows.caught(lie.apply(), before)
            yield Answer(base, lie.file, lie.target, lie.field, lie.kind, lie.scope, gate)


def read_uncaught() -> dict[Place, tuple[set[str], str]]:
    """(base, file, field) → (its lies that no gate catches, why)."""
    with UNCAUGHT.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["base"], row["file"], row["field"]): (set(row["lies"].split()), row["why"]) for row in rows}


def read_classes() -> dict[tuple[str, str], str]:
    """(file, field) → the word of CLASSES for what is not caught of it."""
    with UNCAUGHT.open(encoding="utf-8", newline="") as file:
        return {(row["file"], row["field"]): row["class"] for row in csv.DictReader(file)}


def uncaught(found: Iterable[Answer]) -> dict[Place, list[str]]:
    """(base, file, field) → its lies that no gate catches, in their order."""
    missed: dict[Place, list[str]] = {}
    for answer in found:
        if not answer.gate:
            missed.setdefault(answer.place, []).append(answer.word)
    return missed


def csv_of(
    missed: Mapping[Place, list[str]], whys: Mapping[tuple[str, str], str], classes: Mapping[tuple[str, str], str]
) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for (base, file, field), words in missed.items():
        place = file, field
        writer.writerow((base, file, field, " ".join(words), classes.get(place, ""), whys.get(place, "")))
    return out.getvalue()


def page(found: list[Answer], whys: Mapping[tuple[str, str], str], classes: Mapping[tuple[str, str], str]) -> str:
    """docs/lies.md."""
    told = [HEAD, "## How many", ""]
    told += ["| run | lies | caught | not |", "| --- | --- | --- | --- |"]
    for base in BASES:
        mine = [answer for answer in found if answer.base == base]
        caught = sum(bool(answer.gate) for answer in mine)
        told.append(f"| {RUNS[base]} | {len(mine)} | {caught} | {len(mine) - caught} |")
    told += [
        "",
        *unsealed_lies.section(),
        "",
        "## Field by field",
        "",
        *_matrix(found),
        "",
        "## What data alone cannot show",
        "",
    ]
    told += [*_by_class(found, classes), "", "| file | field | lies | class | why |", "| --- | --- | --- | --- | --- |"]
    merged: dict[tuple[str, str], dict[str, None]] = {}
    for (_, file, field), words in uncaught(found).items():
        merged.setdefault((file, field), {}).update(dict.fromkeys(words))
    for (file, field), each in merged.items():
        kinds = ", ".join(dict.fromkeys(word.split(":")[-2] for word in each))
        why = f"{classes.get((file, field), '')} | {whys.get((file, field), '')}"
        told.append(f"| {FILES[file]} | `{field}` | {kinds} | {why} |")
    return "\n".join(told) + "\n"


def _by_class(found: Iterable[Answer], classes: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """How many lies no gate catches, by why."""
    count: Counter[str] = Counter()
    for (_, file, field), words in uncaught(found).items():
        count[classes.get((file, field), "")] += len(words)
    yield "| class | lies | what it means |"
    yield "| --- | --- | --- |"
    yield from (f"| {name} | {count[name]} | {CLASSES.get(name, '')} |" for name, _ in count.most_common())


def _matrix(found: list[Answer]) -> Iterator[str]:
    kinds = (*lies.KINDS, "swapped")
    yield f"| file | field | {' | '.join(kinds)} |"
    yield "| --- | --- |" + " --- |" * len(kinds)
    cells: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for answer in found:
        field = cells.setdefault((answer.file, answer.field), {})
        field.setdefault(answer.kind, {})[answer.gate or "–"] = None
    for (file, name), gates in cells.items():
        told = [", ".join(gates.get(kind, {})) for kind in kinds]
        yield f"| {FILES[file]} | `{name}` | {' | '.join(told)} |"


RUNS = {"gpu": "made-up, six cells of an H200", "cpu": f"published, three cells of {MODEL} on a CPU"}

FILES = {
    "manifest": "manifest.json",
    "operations": "operations",
    "storages": "storages",
    "profiles": "profiles",
    "self_test": "self_test.json",
    "self_checks": "self_test.json, `checks`",
    **{name: f"{name}.csv" for name in ("sittings", "ceilings", "runs", "samples", "telemetry", "flop_counts")},
}

HEAD = """# Lies and the gates that catch them

What `python -m runners.report DIR --check` makes of a run in which one field says something else. Each field of each
raw file is doubled, halved, swapped with another row's, wiped, renamed and given the other sign, in one row and in all
rows. Checksums and row counts are made anew, so are ids that follow from a row's parameters and every derived table:
what is left is the meaning. A cell of the matrix has the gates that catch the lie ([evidence](evidence.md) says what
each asks; several, where rows differ), `–` where a gate catches it nowhere, or not in every row; an empty one means
that the lie does not apply to this field. Columns that no column of either run fills are not here.

This page is generated, with `tests/lies_uncaught.csv`: `python -m tests.support.lies.lie_matrix --write`. How to add a lie is in
[CONTRIBUTING](../CONTRIBUTING.md#add-a-lie).
"""  # noqa: E501


def _of_file(base: str, file: str) -> list[Answer]:
    """Every lie about one file of one run."""
    with tempfile.TemporaryDirectory() as directory:
        return list(answers(base, gpu(Path(directory) / "run") if base == "gpu" else cpu(), (file,)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.lies.lie_matrix", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--write", action="store_true", help="write the page and the table of what is not caught")
    parser.add_argument("--files", nargs="*", default=(), help="lie about these alone")
    parser.add_argument("--base", choices=BASES, help="about this run alone")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    bases = [base for base in BASES if options.base in (None, base)]
    tasks = [(base, file) for base in bases for file in options.files or FILES]
    with ProcessPoolExecutor(options.processes) as pool:
        found = [answer for some in pool.map(_of_file, *zip(*tasks, strict=True)) for answer in some]
    whys = {(file, field): why for (_, file, field), (_, why) in read_uncaught().items()} if UNCAUGHT.exists() else {}
    classes = read_classes() if UNCAUGHT.exists() else {}
    text = csv_of(uncaught(found), whys, classes)
    if options.write:
        UNCAUGHT.write_text(text, encoding="utf-8")
        PAGE.write_text(page(found, whys, classes), encoding="utf-8")
    else:
        sys.stdout.write(text)
    print(Counter(answer.gate for answer in found), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
