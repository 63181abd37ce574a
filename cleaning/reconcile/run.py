"""From the raw rows of a run to everything that is derived of it: cleaned records, utilization, times, one view a cell.

Pure: no file is written, and nothing is measured again. Each cell is shown by its last committed attempt. Operation
tables are large: one is read for all cells of its trace and dropped before the next; of a profile only its cleaned
products stay, and of the recordings of its works. What cannot be read is a reason in the rows that needed it and a
problem of the run.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.devices.precisions import PRECISIONS
from analysis.operators import registry
from analysis.operators.cost import NEEDS
from analysis.operators.registry import unneeded_flop
from analysis.parallel.rank_grid import parse_plan
from analysis.profile.roofline import machine_of
from analysis.utilization import ceiling_doubts, post2021, windows
from analysis.utilization.denominators import (
    Denominator,
    SessionPeaks,
    datasheet,
    denominators,
    of_ranks,
    session_peaks,
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
from analysis.utilization.utilization import Measurement, measurement, rows
from analysis.utilization.work_times import works_of
from cleaning.counts.conventions import FLOP_COUNTS
from cleaning.counts.pipeline import Cleaned, clean
from cleaning.profile import clean_profile, profile_counts, why_unprofiled
from cleaning.reconcile.agreement import agreement, batch_laws
from cleaning.reconcile.backward_ratio import TableSides, cell_ratios, profile_ratios, sides_of
from cleaning.reconcile.parallel_steps import parallel_steps
from cleaning.reconcile.variants import Built, View, kept_apart, variants
from results.errors import Inconsistent, Unavailable
from results.printable import shortened
from results.process import collector_off
from results.records.answers import ParallelStep, StepTime, Utilization, WorkTime
from results.records.cell import RankCollective, RankRow, Run, Sample, Telemetry
from results.records.counts import (
    CleanedOperation,
    CleaningLog,
    FlopCount,
    Operation,
    ProfileCount,
    ProfiledOperation,
    Ratio,
)
from results.records.rows import LOOP, WORKS
from results.store.layout import Key, by_cell, key_of, profile_file, recording_file
from results.store.reading import RunData

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
ReadOperations = Callable[[str], Sequence[Operation]]
ReadProfile = Callable[[str, int], Sequence[ProfiledOperation]]
ReadRecording = Callable[[str], "tuple[pd.DataFrame, pd.DataFrame]"]
"""The path of a recording within the run → its calls and kernels, attributed, of its last step."""

TABLES = (
    *("step_times", "work_times", "cleaned_operations", "profile_counts", "ratios"),
    *("agreement", "batch_laws", "post2021", "log"),
)
"""What is derived of a cell beside its utilization."""

Tables = Mapping[str, Sequence[Any]]
"""Name of TABLES → its rows of one cell."""

_FAULTS = (Inconsistent, Unavailable, ValueError)
"""What stops one analysis of one cell and becomes a problem of the run."""


@dataclass(frozen=True)
class _Profile:
    """The cleaned products of a cell's profile, their sums, and what cleaning changed.

    ratios: of recordings; those of torch.profiler's own numbers need more than the profile. device: work → kernels and
    busy seconds of a recorded step.
    """

    operations: tuple[CleanedOperation, ...] = ()
    counts: tuple[ProfileCount, ...] = ()
    log: tuple[CleaningLog, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    device: Mapping[str, tuple[int | None, float | None]] = field(default_factory=dict)


class _Raw:
    """The raw rows of a run by cell, how to read what is large, and the problems met on the way."""

    def __init__(
        self, data: RunData, cleaned: Cleaned, read_profile: ReadProfile, read_recording: ReadRecording | None
    ) -> None:
        self.data = data
        self.read_profile = read_profile
        self.read_recording = read_recording
        self.counts = by_cell(cleaned.flop_counts)
        self.left_out = by_cell(cleaned.dropped.get(FLOP_COUNTS, ()))  # in totals, and may be what breaks a total's law
        self.problems: list[str] = []
        self.sittings = {sitting.sitting: sitting for sitting in reversed(data.sittings)}
        self._peaks: dict[tuple[str, str, str], SessionPeaks] = {}
        self._fp32: dict[tuple[str, str, str], Denominator] = {}
        self._memory: dict[tuple[str, str], float | None] = {}

    def peaks(self, run: Run) -> SessionPeaks:
        """The peaks of the device of a run in its session, looked up once."""
        key = run.sitting, run.device, run.malloc
        if key not in self._peaks:
            sitting = self.sittings.get(run.sitting)
            count = sitting.environment.get("multiprocessors") if sitting else None
            sheet = datasheet(
                sitting.device_name if sitting else "", run.device, count if isinstance(count, int) else None
            )
            peak_tflops = _peak_tflops(self.data.manifest.options)
            clock_hz = sitting.preflight.get("sm_clock_max_hz") if sitting else None
            self._peaks[key] = session_peaks(
                run,
                sheet,
                self.data.ceilings,
                peak_tflops,
                float(clock_hz) if isinstance(clock_hz, (int, float)) and clock_hz else None,
            )
        return self._peaks[key]

    def memory_bytes_per_s(self, run: Run) -> float | None:
        """The rate of the device's memory: measured in the session of a run, else of the datasheet."""
        key = run.sitting, run.device
        if key not in self._memory:
            sitting = self.sittings.get(run.sitting)
            rows = [row for row in self.data.ceilings if row.sitting == run.sitting]
            machine = machine_of(rows, run.device, sitting.device_name if sitting else "")
            self._memory[key] = machine.bytes_per_s or machine.datasheet_bytes_per_s
        return self._memory[key]

    def fp32_peak(self, run: Run, under: Sequence[Denominator]) -> Denominator:
        """The peak that the 2021 post would divide by. under: the cell's denominators, of which it is."""
        if run.parallel:
            return post2021.fp32_peak(under)
        key = run.sitting, run.device, run.malloc
        if key not in self._fp32:
            self._fp32[key] = post2021.fp32_peak(under)
        return self._fp32[key]

    def check_whole(self, file: str) -> None:
        """Raises Inconsistent for a file that is not what its attempt committed."""
        if file in self.data.damaged:
            raise Inconsistent(f"{file} is not what was committed")

    def rows_or_problem(self, what: str, run: Run, derive: Callable[[], Iterable[T]]) -> tuple[T, ...]:
        """What one analysis of one cell gives; nothing and a problem if its data contradict each other."""
        try:
            return tuple(derive())
        except _FAULTS as fault:
            self.problems.append(f"{what} of cell {run.cell_id}: {fault}")
            return ()


@collector_off(keeps=True)  # rows are in no cycles; of ten thousand cells it takes a sixth of the time
def build(
    data: RunData,
    read_operations: ReadOperations,
    read_profile: ReadProfile,
    read_recording: ReadRecording | None = None,
) -> Built:
    """Cleans the raw rows and divides.

    read_operations: trace id → operation table; read_profile: cell id, attempt → recorded calls; read_recording: None
    leaves recordings out. All may raise ValueError or Inconsistent, which become reasons in rows.
    """
    data = _of_known_precision(data)
    by_trace = _by_trace(data.runs)
    cleaned = clean(data)
    raw = _Raw(data, cleaned, read_profile, read_recording)
    cells: dict[Key, tuple[View, Tables]] = {}
    for trace_id, runs in by_trace.items():
        table = _of_table(read_operations, trace_id)
        raw.problems += [table.counted] if table.is_problem and isinstance(table.counted, str) else []
        cells |= {key_of(run): _cell(run, raw, table) for run in runs}
    return _join_cells(raw, cleaned, [cells[key_of(run)] for run in data.runs])


def _of_known_precision(data: RunData) -> RunData:
    """The run without cells of a precision that there is none of, from which no unit follows; each is a problem."""
    strange = [run for run in data.runs if run.precision not in PRECISIONS]
    if not strange:
        return data
    expected = f"expected a precision of {', '.join(PRECISIONS)}"
    words = [f"cell {run.cell_id} was left out: {expected}, got {shortened(run.precision, 60)!r}" for run in strange]
    known = [run for run in data.runs if run.precision in PRECISIONS]
    return replace(data, runs=known, problems=[*data.problems, *words])


def _join_cells(raw: _Raw, cleaned: Cleaned, cells: Sequence[tuple[View, Tables]]) -> Built:
    """The cells of a run, in their order, as one."""
    data = raw.data
    tables: dict[str, Any] = {
        name: tuple(itertools.chain.from_iterable(of_cell[name] for _, of_cell in cells)) for name in TABLES
    }
    runs = {key_of(run): run for run in data.runs}
    divided = kept_apart([row for view, _ in cells for row in view.fractions], runs, data.sittings)
    marked = ceiling_doubts.marked(divided, runs, data.ceilings, data.sittings)
    utilization = windows.widened(tuple(marked))
    fractions = by_cell(utilization)
    views = [
        View(run, tuple(fractions.get(key_of(run), ())), view.counted, raw.memory_bytes_per_s(run))
        for run, view in ((view.run, view) for view, _ in cells)
    ]
    steps, trouble = _parallel_steps(data, tables["step_times"])
    of_the_post = windows.widened(kept_apart(tables.pop("post2021"), runs, data.sittings))
    return Built(
        cleaned=replace(cleaned, log=cleaned.log + tables.pop("log")),
        utilization=utilization,
        views=_with_small_batches(views),
        sittings=tuple(data.sittings),
        problems=(*data.problems, *raw.problems, *trouble),
        post2021=of_the_post,
        parallel_steps=steps,
        variants=variants(data.runs, data.by_cell(Sample), data.sittings, data.manifest.options),
        **tables,
    )


def _with_small_batches(views: Sequence[View]) -> tuple[View, ...]:
    """The cells, each with whether a larger batch of its model has a higher utilization (`View.small_batch`)."""
    alike: dict[tuple[str, ...], list[tuple[View, Utilization]]] = {}
    for view in views:
        if (row := view.headline) is not None:
            key = (view.run.model, view.run.device, view.run.precision, view.variant, row.denominator)
            alike.setdefault(key, []).append((view, row))
    small = {
        key_of(view.run)
        for group in alike.values()
        for (view, row), (other, larger) in itertools.permutations(group, 2)
        if other.run.batch_size > view.run.batch_size
        and (larger.utilization_low_ratio or 0.0) > (row.utilization_high_ratio or math.inf)
    }
    return tuple(replace(view, small_batch=key_of(view.run) in small) for view in views)


def _parallel_steps(data: RunData, times: Sequence[StepTime]) -> tuple[tuple[ParallelStep, ...], list[str]]:
    """The rows of cells of several ranks, or the problem of their plans."""
    try:
        ranks, collectives = data.by_cell(RankRow), data.by_cell(RankCollective)
        return parallel_steps(data.runs, times, ranks, collectives, data.by_cell(Sample)), []
    except ValueError as fault:
        return (), [f"parallel: {fault}"]


def _by_trace(runs: Iterable[Run]) -> dict[str, list[Run]]:
    traces: dict[str, list[Run]] = {}
    for run in runs:
        traces.setdefault(run.trace_id, []).append(run)
    return traces


@dataclass(frozen=True)
class _OfTable:
    """What is derived of an operation table, once for all cells that have it.

    counted: in words, why there is no table. flop_by_phase: phase → model FLOP; None without a table.
    computed_by_phase: the same with gradients that calls compute though nothing needs them, as a recording has them.
    is_problem: whether it should be there.
    """

    counted: TableCount | str
    sides: TableSides
    flop_by_phase: Counter[str] | None = None
    computed_by_phase: Counter[str] | None = None
    is_problem: bool = False

    def flop_of_phase(self, phase: str) -> int | None:
        """Model FLOP of a phase; None without a table."""
        return None if self.flop_by_phase is None else self.flop_by_phase[phase]

    @property
    def flop_of_phases(self) -> Callable[[Iterable[str]], int] | None:
        """What the calls of phases compute together."""
        found = self.computed_by_phase
        return None if found is None else lambda phases: sum(found[phase] for phase in phases)


def _of_table(read: ReadOperations, trace_id: str) -> _OfTable:
    """Of one operation table, which is read here and kept by nobody."""
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
        flop_by_phase, computed_by_phase = Counter[str](), Counter[str]()
        for operation, cost in zip(table, costs, strict=True):
            flop_by_phase[operation.phase] += int(cost.model_flop)
            unneeded = 0 if NEEDS not in operation.attributes else unneeded_flop(operation)
            computed_by_phase[operation.phase] += int(cost.model_flop) + unneeded
        return _OfTable(count_table(table, costs), sides_of(table, costs), flop_by_phase, computed_by_phase)


def _cell(run: Run, raw: _Raw, of_table: _OfTable) -> tuple[View, Tables]:
    """Everything of one cell, by TABLES. of_table: of its operation table."""
    key, counted = key_of(run), of_table.counted
    samples, counts = raw.data.by_cell(Sample).get(key, ()), raw.counts.get(key, ())
    all_counts = (*counts, *raw.left_out.get(key, ()))
    measured = measurement(run, samples, raw.data.by_cell(Telemetry).get(key, ()))
    profile, recorded = _profile(run, raw, of_table), _clean_recordings(run, raw, of_table)
    found = _numerators(run, counts, counted, (profile, recorded))
    under = _denominators(measured, measured.clock_hz, raw)
    fractions = _fractions(measured, found, under, raw)
    tables: Tables = {
        "step_times": step_times(run, samples, measured.blocks),
        "work_times": [
            _with_device(row, *recorded.device.get(row.work, (None, None))) for row in measured.works.values()
        ],
        "cleaned_operations": profile.operations + recorded.operations,
        "profile_counts": profile.counts + recorded.counts,
        "ratios": (
            *raw.rows_or_problem("ratios", run, lambda: cell_ratios(run, profile.operations, of_table.sides, counts)),
            *recorded.ratios,
        ),
        "agreement": raw.rows_or_problem("agreement", run, lambda: agreement(run, counts, of_table.flop_of_phase)),
        "batch_laws": raw.rows_or_problem("batch law", run, lambda: batch_laws(run, all_counts)),
        "post2021": post2021.rows(measured, found, raw.fp32_peak(run, under)),
        "log": profile.log + recorded.log,
    }
    return View(run, fractions, None if isinstance(counted, str) else counted), tables


def _profile(run: Run, raw: _Raw, of_table: _OfTable) -> _Profile:
    """A cell's profile, cleaned; where it is damaged or absent, its counts are rows with the reason."""
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
        lost = replace(run, profiled=(), unprofiled=dict.fromkeys(WORKS, why))
        asked = works_of(run)
        return _Profile(counts=tuple(count for count in profile_counts(lost, (), None) if count.work in asked))


def _clean_recordings(run: Run, raw: _Raw, of_table: _OfTable) -> _Profile:
    """What the recordings of a cell's works hold, cleaned; one that is damaged or absent is a reason in its counts."""
    if not run.profile or raw.read_recording is None:
        return _Profile()
    from cleaning.trace.clean import clean_recording  # with pandas, which other runs do without

    operations: list[CleanedOperation] = []
    log: list[CleaningLog] = []
    lost: dict[str, str] = {}
    outside: dict[str, float | None] = {}
    device: dict[str, tuple[int | None, float | None]] = {}
    works = [work for work in WORKS if work != "epoch" and (work in run.profiled or work in run.unprofiled)]
    for work in works:
        file = recording_file(run.cell_id, run.attempt, work, run.profile)
        if file not in run.committed:
            why = why_unprofiled(run, work) or run.unprofiled.get(f"{run.profile} {work}")
            lost[work] = str(why or f"no {run.profile} recording of it was kept")
            continue
        try:
            raw.check_whole(file)
            cleaned = clean_recording(run, work, *raw.read_recording(file), run.profile)
        except _FAULTS as fault:
            lost[work] = f"recording of {work}: {fault}"
            raw.problems.append(f"recording of {work} of cell {run.cell_id}: {fault}")
            continue
        operations.extend(cleaned.operations)
        log.extend(cleaned.log)
        outside[work] = cleaned.outside_time_ratio
        device[work] = cleaned.kernels, cleaned.busy_s
    seen = replace(run, profiled=tuple(work for work in works if work not in lost), unprofiled=lost)
    rows = tuple(operations)
    return _Profile(
        rows,
        profile_counts(seen, rows, of_table.flop_of_phases, run.profile, outside),
        tuple(log),
        raw.rows_or_problem("ratios", run, lambda: profile_ratios(seen, rows, of_table.sides, run.profile)),
        device,
    )


def _with_device(row: WorkTime, kernels: int | None, busy_s: float | None) -> WorkTime:
    """The row with what its recorded step says of the device, over the time of a step that was not recorded."""
    return replace(row, kernels=kernels, busy_ratio=busy_s / row.time_s if busy_s and row.time_s else None)


def _numerators(
    run: Run, counts: Sequence[FlopCount], counted: TableCount | str, profiles: Sequence[_Profile]
) -> list[Numerator]:
    """One for each method of the cell; of theory one for each counter, of a profiled method one for each source."""
    found = []
    if "exact" in run.methods and run.data == LOOP:
        found.append(of_loop(run))
    elif "exact" in run.methods:
        found.append(
            Numerator("exact", "flopledger", reason=counted) if isinstance(counted, str) else exact(counted, run)
        )
    if "theory" in run.methods:
        found += [theory(counts, run, counter) for counter in run.counters]
        if "fvcore" in run.counters:
            found.append(theory_as_published(counts, run))
    sums = [count for profile in profiles for count in profile.counts]
    products = [operation for profile in profiles for operation in profile.operations]
    for method in (method for method in PROFILED_METHODS if method in run.methods):
        found += profiled(method, sums, products, run)
    return no_less_than_known(found)


def _fractions(
    measured: Measurement, numerators: Sequence[Numerator], under: Sequence[Denominator], raw: _Raw
) -> tuple[Utilization, ...]:
    """Every numerator over every denominator; one sample was timed at a clock of its own."""
    of_one = None
    if any(over.method == "one" for over in numerators):
        of_one = _denominators(measured, measured.one_clock_hz, raw)
    return tuple(rows(measured, numerators, under, of_one))


def _denominators(measured: Measurement, clock_hz: float | None, raw: _Raw) -> tuple[Denominator, ...]:
    run, capped_ratio = measured.run, measured.power_capped_ratio or 0.0
    single = denominators(run, raw.peaks(run), clock_hz, capped_ratio > 0)
    if not run.parallel:
        return single
    ranks = raw.data.by_cell(RankRow).get(key_of(run), [])
    try:
        world = parse_plan(run.parallel).world
    except ValueError as fault:
        return tuple(Denominator(each.name, reason=f"parallel: {fault}") for each in single)
    return tuple(of_ranks(each, world, [row.ceiling for row in ranks]) for each in single)


def _peak_tflops(options: Mapping[str, Any]) -> float | None:
    """What the user passed as --peak-tflops, in 10^12 FLOP/s; None for what the command does not accept."""
    value = options.get("peak_tflops")
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if known else None  # type: ignore[arg-type]
