"""Derives everything from a run's raw rows: cleaned records, utilization, times and a view per cell.

`build` takes a `RunData` and functions that read the run's large files, and returns a `Built`. It writes no file and
measures nothing again. A cell (one combination of workload, batch size and precision) is represented by its last
committed attempt. Operation tables are large: each is read once for all cells that share it, and dropped before the
next. Of profiles and recordings only the cleaned products are kept. A file that cannot be read becomes a reason in the
rows that need it and a problem of the run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pandas as pd

from analysis.devices.precisions import PRECISIONS
from analysis.operators import registry
from analysis.operators.cost import NEEDS
from analysis.parallel.rank_grid import parse_plan
from analysis.roofline import machine_of
from analysis.utilization import windows
from analysis.utilization.denominators import (
    Denominator,
    ceiling_of,
    ceilings_of,
    datasheet,
    denominators,
    marked,
    of_ranks,
    user,
)
from analysis.utilization.numerators import (
    PROFILED_METHODS,
    Numerator,
    TableCount,
    count_table,
    exact,
    no_less_than_known,
    of_loop,
    profiled,
    theory,
    theory_as_published,
)
from analysis.utilization.step_times import step_times
from analysis.utilization.utilization import Measurement, fp32_peak, measurement, post2021_rows, rows
from analysis.utilization.work_times import passes_of
from cleaning.counts import model_operators
from cleaning.profile import clean_profile, profile_counts, why_unprofiled
from cleaning.reconcile.agreement import agreement, batch_laws
from cleaning.reconcile.backward_ratio import TableSides, cell_ratios, profile_ratios, sides_of
from cleaning.reconcile.derived import Built, View, with_small_batches
from cleaning.reconcile.parallel_steps import parallel_steps
from cleaning.reconcile.variants import split_by_device, variants
from cleaning.trace.clean import clean_recording
from results.errors import Inconsistent, Unavailable
from results.printable import shortened
from results.process import collector_off
from results.records.cell import LOOP, PASSES, RankCollective, RankRow, Run, Sample, Telemetry
from results.records.counts import (
    CleanedOperation,
    CleaningLog,
    FlopCount,
    Operation,
    ProfileCount,
    ProfiledOperation,
    Ratio,
)
from results.store.layout import Key, by_cell, key_of, profile_file, recording_file
from results.store.reading import RunData

T = TypeVar("T")
ReadOperations = Callable[[str], Sequence[Operation]]
ReadProfile = Callable[[str, int], Sequence[ProfiledOperation]]
ReadRecording = Callable[[str], tuple[pd.DataFrame, pd.DataFrame]]
"""Path of a recording within the run → its calls and kernels, attributed, of its last step."""

TABLES = (
    *("step_times", "work_times", "cleaned_operations", "profile_counts", "ratios"),
    *("agreement", "batch_laws", "post2021", "log"),
)
"""Derived tables of a cell besides its utilization."""

Peaks = tuple[Denominator, Denominator, Denominator, Denominator]
"""Peaks of a session on one device: datasheet, ceiling, user's and sustained ceiling."""

Tables = Mapping[str, Sequence[Any]]
"""Name of TABLES → its rows of one cell."""

_FAULTS = (Inconsistent, Unavailable, ValueError)
"""Exceptions that stop one analysis of one cell and become a problem of the run."""


@dataclass(frozen=True)
class _Profile:
    """The cleaned products of a cell's profile, their sums, and what cleaning changed.

    ratios: of recordings; those of torch.profiler's numbers need more than the profile. device: pass → kernels and busy
    seconds of a recorded step.
    """

    operations: tuple[CleanedOperation, ...] = ()
    counts: tuple[ProfileCount, ...] = ()
    log: tuple[CleaningLog, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    device: Mapping[str, tuple[int | None, float | None]] = field(default_factory=dict)


class _Raw:
    """The raw rows of a run by cell, readers of its large files, and the problems met so far."""

    def __init__(
        self,
        data: RunData,
        counts: Iterable[FlopCount],
        read_profile: ReadProfile,
        read_recording: ReadRecording | None,
    ) -> None:
        self.data = data
        self.read_profile = read_profile
        self.read_recording = read_recording
        self.counts = by_cell(counts)
        self.problems: list[str] = []
        self._sessions = {session.session: session for session in reversed(data.sessions)}
        self._devices: dict[tuple[str, str, str], tuple[Peaks, float | None]] = {}

    def device(self, run: Run) -> tuple[Peaks, float | None]:
        """Return the peaks of a run's device in its session, and bytes per second of its memory: measured, else the
        datasheet's."""
        key = run.session, run.device, run.malloc
        if key not in self._devices:
            session = self._sessions.get(run.session)
            name = session.device_name if session else ""
            count = session.environment.get("multiprocessors") if session else None
            clock_hz = session.preflight.get("sm_clock_max_hz") if session else None
            given: Any = self.data.manifest.options.get("peak_tflops")
            here = ceilings_of(run, self.data.ceilings)
            sheet = datasheet(name, run.device, count if isinstance(count, int) else None)
            highest_hz = float(clock_hz) if isinstance(clock_hz, (int, float)) and clock_hz else None
            single, sustained = (ceiling_of(here, sheet.device, highest_hz, kind) for kind in (False, True))
            peaks = sheet, single, user(float(given) if type(given) in (int, float) else None), sustained
            machine = machine_of((row for row in self.data.ceilings if row.session == run.session), run.device, name)
            self._devices[key] = peaks, machine.bytes_per_s or machine.datasheet_bytes_per_s
        return self._devices[key]

    def check_whole(self, file: str) -> None:
        """Raise Inconsistent for a file that is not what its attempt committed."""
        if file in self.data.damaged:
            raise Inconsistent(f"{file} is not what was committed")

    def rows_or_problem(self, what: str, derive: Callable[[], Iterable[T]]) -> tuple[T, ...]:
        """Return the rows of one analysis; if its data contradict each other, return none and note a problem."""
        try:
            return tuple(derive())
        except _FAULTS as fault:
            self.problems.append(f"{what}: {fault}")
            return ()


@collector_off()  # rows are in no cycles; of ten thousand cells it takes a sixth of the time
def build(
    data: RunData,
    read_operations: ReadOperations,
    read_profile: ReadProfile,
    read_recording: ReadRecording | None = None,
) -> Built:
    """Clean the raw rows, and derive every table and view from them.

    read_operations: trace id → operation table; read_profile: cell id, attempt → recorded calls; read_recording: None
    leaves recordings out. All may raise ValueError or Inconsistent, which become reasons in rows.
    """
    if strange := [run for run in data.runs if run.precision not in PRECISIONS]:  # from which no unit follows
        expected = f"expected a precision of {', '.join(PRECISIONS)}"
        lines = [f"cell {r.cell_id} was left out: {expected}, got {shortened(r.precision, 60)!r}" for r in strange]
        known = [run for run in data.runs if run.precision in PRECISIONS]
        data = replace(data, runs=known, problems=[*data.problems, *lines])
    counts, log = model_operators(data.records(FlopCount))
    raw = _Raw(data, counts, read_profile, read_recording)
    traces: dict[str, list[Run]] = {}
    for run in data.runs:
        traces.setdefault(run.trace_id, []).append(run)
    cells: dict[Key, tuple[View, Tables]] = {}
    versions = {registry.VERSION}
    for trace_id, runs in traces.items():
        table = _of_table(read_operations, trace_id)
        versions.add(table.rules or registry.VERSION)
        if table.is_problem:
            raw.problems.append(str(table.counted))
        cells |= {key_of(run): _cell(run, raw, table) for run in runs}
    if other := versions - {registry.VERSION}:
        counted = f"FLOP were counted by version {min(other)} of the rules"
        raw.problems.append(f"{counted}; runners.report --reprice counts by version {registry.VERSION}")
    return _join_cells(raw, counts, log, [cells[key_of(run)] for run in data.runs])


def _join_cells(
    raw: _Raw, counts: Sequence[FlopCount], log: Sequence[CleaningLog], cells: Sequence[tuple[View, Tables]]
) -> Built:
    """Join the results of a run's cells, in their order."""
    data = raw.data
    tables: dict[str, Any] = {
        name: tuple(itertools.chain.from_iterable(of_cell[name] for _, of_cell in cells)) for name in TABLES
    }
    runs = {key_of(run): run for run in data.runs}
    divided = split_by_device([row for view, _ in cells for row in view.fractions], runs, data.sessions)
    utilization = windows.widened(tuple(marked(divided, runs, data.ceilings, data.sessions)))
    fractions = by_cell(utilization)
    views = [replace(view, fractions=tuple(fractions.get(key_of(view.run), ()))) for view, _ in cells]
    samples = data.by_cell(Sample)
    steps = raw.rows_or_problem(
        "parallel",
        lambda: parallel_steps(
            data.runs, tables["step_times"], data.by_cell(RankRow), data.by_cell(RankCollective), samples
        ),
    )
    return Built(
        utilization=utilization,
        views=with_small_batches(views),
        sessions=tuple(data.sessions),
        problems=(*data.problems, *raw.problems),
        flop_counts=tuple(counts),
        log=(*log, *tables.pop("log")),
        post2021=windows.widened(split_by_device(tables.pop("post2021"), runs, data.sessions)),
        parallel_steps=steps,
        variants=variants(data.runs, samples, data.sessions, data.manifest.options),
        **tables,
    )


@dataclass(frozen=True)
class _OfTable:
    """Results derived from an operation table, once for all cells that share it.

    counted: as text, why there is no table. flop_of_phase: phase → model FLOP; None without a table. flop_of_phases:
    the same of several phases, with gradients that calls compute though nothing needs them, as in a recording.
    is_problem: whether the table should exist. rules: version of the rules by which the run counted it; 0: none.
    """

    counted: TableCount | str
    sides: TableSides
    flop_of_phase: Callable[[str], int | None] = lambda _: None
    flop_of_phases: Callable[[Iterable[str]], int] | None = None
    is_problem: bool = False
    rules: int = 0


def _of_table(read: ReadOperations, trace_id: str) -> _OfTable:
    """Derive what is needed from one operation table, without keeping it."""
    if not trace_id:
        return _OfTable("no operation table was recorded for this cell", sides_of(None))
    try:
        table = read(trace_id)
        why = "" if table else f"operation table {trace_id} is empty"
    except (Inconsistent, ValueError) as fault:
        why = f"operation table {trace_id}: {fault}"
    if why:
        return _OfTable(why, sides_of(None), is_problem=True)
    with collector_off():
        costs = [registry.cost(operation) for operation in table]
        needed, computed = Counter[str](), Counter[str]()
        for operation, cost in zip(table, costs, strict=True):
            needed[operation.phase] += int(cost.model_flop)
            computed[operation.phase] += registry.unneeded_flop(operation) if NEEDS in operation.attributes else 0
        computed += needed
        return _OfTable(
            count_table(table, costs),
            sides_of(table, costs),
            needed.__getitem__,
            lambda phases: sum(computed[phase] for phase in phases),
            rules=table[0].rules,
        )


def _cell(run: Run, raw: _Raw, of_table: _OfTable) -> tuple[View, Tables]:
    """Derive everything of one cell, by TABLES. of_table: of its operation table."""
    key, counted = key_of(run), of_table.counted
    samples, counts = raw.data.by_cell(Sample).get(key, ()), raw.counts.get(key, ())
    measured = measurement(run, samples, raw.data.by_cell(Telemetry).get(key, ()))
    profile, recorded = _profile(run, raw, of_table), _clean_recordings(run, raw, of_table)
    numerators = _numerators(run, counts, counted, (profile, recorded))
    divisors = _denominators(measured, measured.clock_hz, raw)
    pass_times = []  # with what a recorded step shows of the device, over the time of a step that was not recorded
    for row in measured.passes.values():
        kernels, busy_s = recorded.device.get(row.work, (None, None))
        pass_times.append(
            replace(row, kernels=kernels, busy_ratio=busy_s / row.time_s if busy_s and row.time_s else None)
        )
    sample_divisors = None  # one sample was timed at a clock of its own
    if any(numerator.method == "one" for numerator in numerators):
        sample_divisors = _denominators(measured, measured.sample_clock_hz, raw)
    tables: Tables = {
        "step_times": step_times(run, samples, measured.summary),
        "work_times": pass_times,
        "cleaned_operations": profile.operations + recorded.operations,
        "profile_counts": profile.counts + recorded.counts,
        "ratios": (
            *raw.rows_or_problem(
                f"ratios of cell {run.cell_id}",
                lambda: cell_ratios(run, profile.operations, of_table.sides, counts),
            ),
            *recorded.ratios,
        ),
        "agreement": agreement(run, counts, of_table.flop_of_phase),
        "batch_laws": batch_laws(run, raw.data.by_cell(FlopCount).get(key, ())),
        "post2021": post2021_rows(measured, numerators, fp32_peak(divisors)),
        "log": profile.log + recorded.log,
    }
    table = None if isinstance(counted, str) else counted
    view = View(run, tuple(rows(measured, numerators, divisors, sample_divisors)), table, raw.device(run)[1])
    return view, tables


def _profile(run: Run, raw: _Raw, of_table: _OfTable) -> _Profile:
    """Clean a cell's profile; where it is damaged or absent, its counts are rows with the reason."""
    try:
        raw.check_whole(profile_file(run.cell_id, run.attempt))
        if not (run.profiled or run.unprofiled or {*PROFILED_METHODS} & {*run.methods}):
            return _Profile()
        calls = raw.read_profile(run.cell_id, run.attempt) if run.profiled else ()
        clean = clean_profile(run, calls)
        counts = profile_counts(run, clean.operations, of_table.flop_of_phases)
        return _Profile(tuple(clean.operations), counts, tuple(clean.log))
    except _FAULTS as fault:
        why = f"profile of cell {run.cell_id}: {fault}"
        raw.problems.append(why)
        lost = replace(run, profiled=(), unprofiled=dict.fromkeys(PASSES, why))
        passes = passes_of(run)
        return _Profile(counts=tuple(count for count in profile_counts(lost, (), None) if count.work in passes))


def _clean_recordings(run: Run, raw: _Raw, of_table: _OfTable) -> _Profile:
    """Clean the recordings of a cell's passes; for a damaged or absent one, its counts have the reason."""
    if not run.profile or raw.read_recording is None:
        return _Profile()
    passes = [
        pass_name
        for pass_name in PASSES
        if pass_name != "epoch" and (pass_name in run.profiled or pass_name in run.unprofiled)
    ]
    clean, lost = {}, {}
    for pass_name in passes:
        file = recording_file(run.cell_id, run.attempt, pass_name, run.profile)
        if file not in run.committed:
            why = why_unprofiled(run, pass_name) or run.unprofiled.get(f"{run.profile} {pass_name}")
            lost[pass_name] = str(why or f"no {run.profile} recording of it was kept")
            continue
        try:
            raw.check_whole(file)
            clean[pass_name] = clean_recording(run, pass_name, *raw.read_recording(file), run.profile)
        except _FAULTS as fault:
            lost[pass_name] = f"recording of {pass_name}: {fault}"
            raw.problems.append(f"recording of {pass_name} of cell {run.cell_id}: {fault}")
    seen = replace(run, profiled=tuple(clean), unprofiled=lost)
    rows = tuple(operation for recording in clean.values() for operation in recording.operations)
    outside = {pass_name: recording.outside_time_ratio for pass_name, recording in clean.items()}
    return _Profile(
        rows,
        profile_counts(seen, rows, of_table.flop_of_phases, run.profile, outside),
        tuple(entry for recording in clean.values() for entry in recording.log),
        raw.rows_or_problem(
            f"ratios of cell {run.cell_id}", lambda: profile_ratios(seen, rows, of_table.sides, run.profile)
        ),
        {pass_name: (recording.kernels, recording.busy_s) for pass_name, recording in clean.items()},
    )


def _numerators(
    run: Run, counts: Sequence[FlopCount], counted: TableCount | str, profiles: Sequence[_Profile]
) -> list[Numerator]:
    """Return one numerator per method of the cell; for theory one per counter, for a profiled method one per source."""
    numerators: list[Numerator] = []
    if "exact" in run.methods:
        no_table = Numerator("exact", "flopledger", reason=str(counted))
        of_table = no_table if isinstance(counted, str) else exact(counted, run)
        numerators.append(of_loop(run) if run.data == LOOP else of_table)
    if "theory" in run.methods:
        numerators += [theory(counts, run, counter) for counter in run.counters]
        numerators += [theory_as_published(counts, run)] if "fvcore" in run.counters else []
    sums = [count for profile in profiles for count in profile.counts]
    products = [operation for profile in profiles for operation in profile.operations]
    for method in PROFILED_METHODS:
        numerators += profiled(method, sums, products, run) if method in run.methods else []
    return no_less_than_known(numerators)


def _denominators(measured: Measurement, clock_hz: float | None, raw: _Raw) -> tuple[Denominator, ...]:
    run, capped_ratio = measured.run, measured.power_capped_ratio or 0.0
    single = denominators(raw.device(run)[0], clock_hz, capped_ratio > 0)
    if not run.parallel:
        return single
    ranks = raw.data.by_cell(RankRow).get(key_of(run), [])
    try:
        world = parse_plan(run.parallel).world
    except ValueError as fault:
        return tuple(Denominator(peak.name, reason=f"parallel: {fault}") for peak in single)
    return tuple(of_ranks(peak, world, [row.ceiling for row in ranks]) for peak in single)
