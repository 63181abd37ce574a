"""All raw rows of a run in memory, so that one of them can be another, and the verdicts on what came of it.

There are no checksums here to be recomputed: what is asked of these rows is asked of a run whose seals all fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cleaning.facts.self_test import CheckResult, SelfTest
from cleaning.facts.values import faults
from cleaning.gates.evidence import Evidence, all_facts, by_cell, profile_facts
from cleaning.gates.gates import GATES, judge, verdicts
from results.records import (
    Ceiling,
    FlopCount,
    Operation,
    ProfiledOperation,
    Record,
    Run,
    Sample,
    Sitting,
    Storage,
    Telemetry,
    Utilization,
    header,
)
from results.records.verdicts import FAIL, OPEN, Verdict
from results.store.layout import Key, key_of
from results.store.manifest import Manifest
from results.store.reading import RunData
from results.store.store import read_operations, read_profile, read_run
from runners.report.check import assembled, self_test_of

CELL_FILES = {"samples.csv": Sample, "telemetry.csv": Telemetry, "flop_counts.csv": FlopCount}


@dataclass
class Rows:
    """File → its rows. manifest.json is one row; tables of operations, storages and profiles are by trace or attempt.

    self_test: the document of self_test.json, if there is one, self_checks: its checks.
    utilization: of a lie in utilization.csv; None: it is what the other rows give, lies and all.
    """

    manifest: Manifest
    sittings: list[Sitting]
    ceilings: list[Ceiling]
    runs: list[Run]
    samples: list[Sample]
    telemetry: list[Telemetry]
    flop_counts: list[FlopCount]
    operations: dict[str, list[Operation]]
    storages: dict[str, list[Storage]]
    profiles: dict[Key, list[ProfiledOperation]] = field(default_factory=dict)
    utilization: list[Utilization] | None = None
    self_test: list[SelfTest] = field(default_factory=list)
    self_checks: list[CheckResult] = field(default_factory=list)

    def copy(self, *files: str) -> Rows:
        """The same rows, those of some files in lists of their own."""
        held = {file: getattr(self, file) for file in files}
        return replace(self, **{file: _listed(rows) for file, rows in held.items()})


def _listed(held: Any) -> Any:
    return {key: list(rows) for key, rows in held.items()} if isinstance(held, dict) else list(held)


def load(path: Path, keep: Sequence[str] = ()) -> Rows:
    """The rows of a run directory; of the cells `keep`, if any are named."""
    data = read_run(path)
    assert not data.problems, data.problems
    runs = [run for run in data.runs if not keep or run.cell_id in keep]
    keys, traces = {key_of(run) for run in runs}, dict.fromkeys(run.trace_id for run in runs)
    tables = {trace_id: read_operations(path, trace_id) for trace_id in traces}
    manifest = data.manifest if not keep else replace(data.manifest, options={})
    test = self_test_of(path)
    return Rows(
        manifest=manifest,
        sittings=[each for each in data.sittings if each.sitting in {run.sitting for run in runs}],
        ceilings=[each for each in data.ceilings if each.sitting in {run.sitting for run in runs}],
        runs=runs,
        samples=[row for row in data.records(Sample) if key_of(row) in keys],
        telemetry=[row for row in data.records(Telemetry) if key_of(row) in keys],
        flop_counts=[row for row in data.records(FlopCount) if key_of(row) in keys],
        operations={trace_id: table for trace_id, (table, _) in tables.items()},
        storages={trace_id: rows for trace_id, (_, rows) in tables.items()},
        profiles={key_of(run): read_profile(path, run.cell_id, run.attempt) for run in runs if run.profiled},
        self_test=[test] if isinstance(test, SelfTest) else [],
        self_checks=list(test.checks) if isinstance(test, SelfTest) else [],
    )


def evidence_of(rows: Rows, derived: bool = True) -> Evidence:
    """What `--check` would ask of these rows, were they on a disk with every seal made anew.

    derived: whether everything that is derived from them is there, too.
    """
    keys = {key_of(run) for run in rows.runs}
    problems = _problems(rows, keys)
    if not derived:
        return _raw(rows, problems)
    read = {
        file: tuple(_as_read(row) for row in getattr(rows, file.removesuffix(".csv")) if key_of(row) in keys)
        for file in CELL_FILES
    }
    data = RunData(Path("made-up"), rows.manifest, rows.runs, rows.runs, rows.sittings, rows.ceilings, read, problems)
    found, built = assembled(data, _reader(rows), _profiles(rows), None, rows.utilization or ())
    published = built.utilization if rows.utilization is None else rows.utilization
    return replace(found, published=published, keeps_utilization=True, self_test=_self_test(rows))


def _self_test(rows: Rows) -> SelfTest | None:
    return replace(rows.self_test[0], checks=tuple(rows.self_checks)) if rows.self_test else None


def _as_read(row: Record) -> Record:
    """A row as it is read from a disk, where what is no number is unknown."""
    unknown = {n: None for n in header(type(row)) if isinstance(v := getattr(row, n), float) and math.isnan(v)}
    return replace(row, **unknown) if unknown else row


def _raw(rows: Rows, problems: list[str]) -> Evidence:
    """The evidence without what is derived, and without tables of pandas: facts of tables that are as they were are
    worked out once."""
    malformed = {run.cell_id: "; ".join(words) for run in rows.runs if (words := faults(run))}
    runs = [run for run in rows.runs if run.cell_id not in malformed]
    data = RunData(Path("made-up"), rows.manifest, runs, rows.runs, rows.sittings, rows.ceilings, {}, problems)
    facts, profiles = {}, {}
    for run in runs:
        tables = rows.operations.get(run.trace_id), rows.storages.get(run.trace_id)
        if run.trace_id:
            facts[run.trace_id] = _once(tables, lambda run=run: all_facts([run], _reader(rows))[run.trace_id])
        if run.profiled:
            calls = (rows.profiles.get(key_of(run)),)
            profiles[key_of(run)] = _once(calls, lambda run=run: profile_facts([run], _profiles(rows))[key_of(run)])
    held: dict[str, Any] = {name: by_cell(getattr(rows, file)) for name, file in BY_CELL.items()}
    held["self_test"] = _self_test(rows)
    return Evidence(data=data, facts=facts, profiles=profiles, malformed=malformed, **held)


BY_CELL = {"samples": "samples", "telemetry": "telemetry", "counts": "flop_counts"}

_FACTS: dict[tuple[int, ...], tuple[Any, Any]] = {}


def _once(tables: tuple[Any, ...], facts: Any) -> Any:
    """Facts of tables, by their identity: the tables are kept, so that no other gets it."""
    key = tuple(map(id, tables))
    if None in tables:
        return facts()
    if key not in _FACTS:
        _FACTS[key] = tables, facts()
    return _FACTS[key][1]


def _problems(rows: Rows, keys: set[Key]) -> list[str]:
    """What reading would say: rows of no attempt, one attempt twice, a session that is not there."""
    told = []
    for file in CELL_FILES:
        lost = sum(key_of(row) not in keys for row in getattr(rows, file.removesuffix(".csv")))
        told += [f"{file}: {lost} rows are not committed, left out"] if lost else []
    told += [f"attempt {key} again" for key, times in Counter(map(key_of, rows.runs)).items() if times > 1]
    names = {sitting.sitting for sitting in rows.sittings}
    return told + [f"no session {run.sitting}" for run in rows.runs if run.sitting not in names]


def _reader(rows: Rows) -> Any:
    def read(trace_id: str) -> tuple[list[Operation], list[Storage]]:
        if trace_id not in rows.operations:
            raise ValueError(f"the run has no operations/{trace_id}.csv.gz")
        return rows.operations[trace_id], rows.storages[trace_id]

    return read


def _profiles(rows: Rows) -> Any:
    def read(cell_id: str, attempt: int) -> list[ProfiledOperation]:
        if (cell_id, attempt) not in rows.profiles:
            raise ValueError(f"the run has no profile of {cell_id}-{attempt}")
        return rows.profiles[cell_id, attempt]

    return read


BY_MARKS = ("throttling",)
"""Gates that ask what derived rows are marked with, which a first look has not."""


def caught(rows: Rows, before: frozenset[tuple[str, str]] = frozenset()) -> str:
    """The first gate that fails where it did not `before`, or is open and must not be; empty where there is none.

    What needs nothing derived is asked first: most lies are caught there, in a fraction of the time.
    """
    bare = [gate for gate in GATES if gate.name not in BY_MARKS]
    return _first(verdicts(evidence_of(rows, derived=False), bare), before, (FAIL,)) or _first(
        verdicts(evidence_of(rows)), before, (FAIL, OPEN)
    )


def failed(rows: Rows) -> frozenset[tuple[str, str]]:
    """(gate, cell id) of what fails in a run that nobody lied about, and ("gate", "open") of what is open."""
    return frozenset(place for verdict in judge(evidence_of(rows)) for place in _places(verdict))


def _first(asked: Iterable[Verdict], before: frozenset[tuple[str, str]], bad: tuple[str, ...]) -> str:
    fresh = (v.gate for v in asked if v.verdict in bad and not set(_places(v)) <= before)
    return next(fresh, "")


def _places(verdict: Verdict) -> list[tuple[str, str]]:
    if verdict.verdict == OPEN and verdict.needed:
        return [(verdict.gate, OPEN)]
    return [(verdict.gate, cell) for cell in verdict.found] if verdict.verdict == FAIL else []


def options_of(path: Path) -> dict[str, Any]:
    """The options in a run's manifest."""
    return dict(read_run(path).manifest.options)
