"""Compares two runs cell by cell, to tell whether B's steps are faster, slower or take the same time.

A cell is one combination of workload, batch size and precision. `compare_runs` takes both runs' data and returns a
`Comparison` row for each cell. Cells match if they have the same step (`analysis/stats/comparison.py`). Their ids are
not compared, since an id also depends on other requests. The caller names the conditions that may differ; any other
difference raises ValueError with its name. `comparison_text` takes the rows and returns a table in the terminal's
width, the summary first. No file is read or written.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.stats.comparison import (
    ALARM_RATIO,
    MARGIN_RATIO,
    OF_A_STEP,
    SESSIONS,
    Session,
    conditions,
    difference,
    holm,
    relative_difference,
    resolution,
    scatter,
    verdict,
)  # fmt: skip
from analysis.utilization.step_times import PairedCeiling, block_means_s, paired_ceiling, whole_steps
from analysis.utilization.windows import Window
from analysis.utilization.work_times import variant
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, page
from reports.shared.numbers import DASH, digits, percent, si_time
from results.errors import Unavailable
from results.records.answers import FASTER, ONLY_A, ONLY_B, ONLY_IN_ONE, SAME, SLOWER, UNKNOWN, Comparison, GateCheck
from results.records.cell import MEASURED, Run, Sample, SessionRow
from results.records.rows import to_text
from results.store.layout import key_of
from results.store.manifest import driver_branch
from results.store.reading import RunData
from results.text_files import listed

OF_A_MACHINE = ("device_name", "driver_branch", "torch_version", "torch_threads", "power_limit_w")
"""Facts of the machine that must be equal in both runs; a fact that neither run has is equal."""

ACROSS = (*OF_A_MACHINE, *(name for name in OF_A_STEP if name != "model"))
"""Differences that a caller may allow."""

NO_COUNTERPART = "no counterpart; here it is "
"""Beginning of the reason for a cell that only one run has; the cell's status in that run follows."""

ONE_SESSION = "one session on a side: add sessions with --repeat 2 --resume RUN, then --repeat 3 --resume RUN"
"""The advice for a cell with one session on a side, where only a large difference can be shown."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class RepeatGroup:
    """The repeats of one cell, and the mean time of each block of each measured repeat.

    A repeat has no times if one of its blocks has no finite time above 0. step_times_s: mean step time of each measured
    repeat. relative: per session, the logarithms of step times ÷ times of the ceiling's kernels, if every repeat has a
    paired ceiling. kernels: names of those kernels.
    """

    runs: tuple[Run, ...]
    times: tuple[tuple[float, ...], ...]
    step_times_s: tuple[float, ...]
    relative: tuple[Session, ...] = ()
    kernels: frozenset[str] = frozenset()

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(run.cell_id for run in self.runs)


def compare_runs(
    a: RunData, b: RunData, across: Collection[str] = (), margin_ratio: float | None = None
) -> list[Comparison]:
    """Return one row for each cell of either run, matched ones first, in A's order.

    margin_ratio: None takes that of the device. Raises ValueError for runs that may not be compared, that have no cell
    in common, or where a cell has several counterparts.
    """
    of_a, of_b = _machines(a), _machines(b)
    if machines := [name for name in OF_A_MACHINE if name not in across and of_a[name] != of_b[name]]:
        differences = "; ".join(
            f"{name} is {_listed(of_a[name])} in A and {_listed(of_b[name])} in B" for name in machines
        )
        threads = "; OMP_NUM_THREADS=N before both sweeps gives both as many threads" * ("torch_threads" in machines)
        asks = f"--across {','.join(machines)} compares all the same{threads}"
        raise ValueError(f"these runs cannot be compared: {differences} ({asks})")
    groups_a, groups_b = (groups(data, across) for data in (a, b))
    for name, group in ((name, group) for name, side in (("A", groups_a), ("B", groups_b)) for group in side.values()):
        run = group.runs[0]
        if several := _differing(conditions(run), [*map(conditions, group.runs)]):  # no repeats of one cell
            cell = f"{run.model} b{run.batch_size}"
            raise ValueError(f"--across: expected one value of {', '.join(several)} for {cell}, {name} has several")
    common = [key for key in groups_a if key in groups_b]
    if not common:
        pairs = [(_differing(key_a, [key_b]), key_a, key_b) for key_a in groups_a for key_b in groups_b]
        fields, key_a, key_b = min(pairs, key=lambda pair: len(pair[0]))
        indices = map(OF_A_STEP.index, fields)
        differing = ", ".join(f"{OF_A_STEP[i]} is {key_a[i]!r} in A and {key_b[i]!r} in B" for i in indices)
        hint = f" (--across {','.join(fields)} allows that)" * ("model" not in fields)
        raise ValueError(f"these runs have no cell in common: {differing}{hint}")
    pooled = scatter(side[key].relative for key in common for side in (groups_a, groups_b))
    rows = _adjusted([_row(groups_a[key], groups_b[key], pooled, margin_ratio) for key in common])
    rows += [_unmatched(group, ONLY_A) for key, group in groups_a.items() if key not in groups_b]
    return rows + [_unmatched(group, ONLY_B) for key, group in groups_b.items() if key not in groups_a]


def groups(data: RunData, across: Collection[str] = ()) -> dict[Key, RepeatGroup]:
    """Group a run's cells: parameters that decide a step, without those that may differ → the cell's repeats."""
    repeats: dict[Key, list[Run]] = {}
    for run in data.runs:
        texts = dict(zip(OF_A_STEP, conditions(run), strict=True))
        repeats.setdefault(tuple("" if name in across else text for name, text in texts.items()), []).append(run)
    same_kernels = not {*across} & {*OF_A_MACHINE, "device", "precision"}
    return {key: _group(runs, data.by_cell(Sample), same_kernels) for key, runs in repeats.items()}


def _group(
    runs: Sequence[Run], samples: Mapping[tuple[str, int], Sequence[Sample]], same_kernels: bool = True
) -> RepeatGroup:
    """Group a cell. same_kernels: whether the ceilings of both runs are of one machine and precision."""
    times, step_times_s, kernels = [], [], set[str]()
    sessions: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        timed = samples.get(key_of(run), ())
        blocks = whole_steps(timed) if run.status in MEASURED else []
        means_s = tuple(block_means_s(blocks)) if blocks else ()
        if not means_s or not all(0 < mean_s < math.inf for mean_s in means_s):
            continue
        times.append(means_s)
        step_times_s.append(fmean(means_s, [block.steps for block in blocks]))  # as step_times.csv has it
        paired = paired_ceiling(timed, run.interval_rule) if same_kernels else None
        if paired is not None and (window := _relative(run, paired)) is not None:
            sessions.setdefault(run.session, []).append(window)
            kernels.update(paired.kernels.values())
    complete = sum(map(len, sessions.values())) == len(times)
    relative = tuple(sessions.values()) if complete else ()
    return RepeatGroup(tuple(runs), tuple(times), tuple(step_times_s), relative, frozenset(kernels))


def _relative(run: Run, paired: PairedCeiling) -> tuple[float, float] | None:
    """Return (logarithm of the step time ÷ that of as many FLOP of the kernels, its variance); None where that is
    unknown."""
    units: dict[str, float] = {}
    policy = PRECISIONS.get(run.precision)
    if policy is None:  # of a run whose file names another
        return None
    try:
        for name, flop in run.executed.items():
            unit = unit_of(name.partition("/")[2], policy, run.device)
            units[unit] = units.get(unit, 0.0) + flop / sum(run.executed.values())
        used = paired.utilization(units)
    except (Unavailable, ValueError, ArithmeticError):
        return None
    if not used.low or not used.high or not used.ratio > 0:
        return None
    return -math.log(used.ratio), Window(used.ratio, used.low, used.high).variance


def _differing(first: Key, others: Sequence[Key]) -> list[str]:
    return [name for i, name in enumerate(OF_A_STEP) if any(other[i] != first[i] for other in others)]


def _row(a: RepeatGroup, b: RepeatGroup, pooled: tuple[float, int], margin_ratio: float | None) -> Comparison:
    """Compare one matched cell, with its p-values by itself. pooled: `scatter` of all of them."""
    blank = replace(_blank(b, UNKNOWN), cells_a=a.cells, cells_b=b.cells)
    lacking = [name for name, group in (("A", a), ("B", b)) if not group.times]
    if lacking:
        return replace(blank, reason=f"no time in {' and '.join(lacking)}")
    margin = MARGIN_RATIO.get(b.runs[0].device.partition(":")[0], max(MARGIN_RATIO.values()))
    margin = margin if margin_ratio is None else margin_ratio
    if a.relative and b.relative:
        result = relative_difference(a.relative, b.relative, pooled, margin)
        notes = [ONE_SESSION] if min(len(a.relative), len(b.relative)) == 1 else []
        notes += ["other kernels were timed beside A than beside B"] if a.kernels.isdisjoint(b.kernels) else []
    else:
        result = difference(a.times, b.times, margin)
        notes = [] if result.p_same is not None else ["a single block has no interval"]
    low, high = result.interval()
    return replace(
        blank,
        margin_ratio=margin,
        ratio=result.ratio,
        low_ratio=low,
        high_ratio=high,
        error_ratio=result.error_ratio,
        degrees=result.degrees,
        p_different=result.p_different,
        p_same=result.p_same,
        basis=result.basis,
        time_a_s=fmean(a.step_times_s),
        time_b_s=fmean(b.step_times_s),
        blocks_a=sum(map(len, a.times)),
        blocks_b=sum(map(len, b.times)),
        reason="; ".join(notes),
    )


def _adjusted(rows: Sequence[Comparison]) -> list[Comparison]:
    """Return the rows with p-values over all of them, the verdicts that follow, and the least difference that could be
    shown."""
    different, same = holm([row.p_different for row in rows]), holm([row.p_same for row in rows])
    adjusted = []
    for row, p, q in zip(rows, different, same, strict=True):
        word, reason = UNKNOWN if row.ratio is None else verdict(row.ratio, p, q, row.basis), row.reason
        if row.basis == SESSIONS and word == UNKNOWN:
            least = resolution(row.error_ratio, row.degrees or 0.0, ALARM_RATIO / len(rows))
            reason = "; ".join(filter(None, (f"cannot tell below {percent(least or 0.0)}", reason)))
        adjusted.append(replace(row, p_different=p, p_same=q, verdict=word, reason=reason))
    return adjusted


def _unmatched(group: RepeatGroup, where: str) -> Comparison:
    status = ", ".join(dict.fromkeys(run.status for run in group.runs))
    row = replace(_blank(group, where), reason=f"{NO_COUNTERPART}{status}")
    return replace(row, cells_a=group.cells) if where == ONLY_A else replace(row, cells_b=group.cells)


def _blank(group: RepeatGroup, verdict: str) -> Comparison:
    run = group.runs[0]
    of_cell = {name: getattr(run, name) for name in ("model", "batch_size", "precision", "device")}
    return Comparison(**of_cell, variant=variant(run), verdict=verdict)


def _machines(data: RunData) -> dict[str, set[str]]:
    used = {run.session for run in data.runs}
    sessions: list[SessionRow] = [session for session in data.sessions if session.session in used]
    return {
        "device_name": {session.device_name for session in sessions},
        "driver_branch": {driver_branch(session.driver) for session in sessions},
        "torch_version": {session.torch_version for session in sessions},
        "torch_threads": {to_text(session.environment.get("torch_threads")) for session in sessions},
        "power_limit_w": {to_text(session.preflight.get("power_limit_w")) for session in sessions},
    }


def _listed(values: Collection[str]) -> str:
    return ", ".join(repr(value) for value in sorted(values)) or "unknown"


SHOWN = 12
"""Maximum number of unmatched cells of each run that are named; csv and json have all."""

_COLUMNS = (
    TableColumn("model", right=False, wraps=True),
    TableColumn("batch", right=True),
    TableColumn("precision", right=False),
    TableColumn("B is", right=False),
    TableColumn("B ÷ A", right=True),
    TableColumn("95 % interval", right=True),
    TableColumn("A", right=True, rank=1),
    TableColumn("B", right=True, rank=1),
    TableColumn("blocks", right=True, rank=2),
)
HEADS = tuple(column.name for column in _COLUMNS)

_BASES = {
    "sessions": "where both runs have paired ceilings, B ÷ A is of step times relative to these (utilization of A ÷ of "
    "B), its error is the scatter of sessions, and faster or slower means other than 1",
    "processes": "where both runs have repeats, the error is the scatter of their processes, and faster or slower "
    "means other than 1",
    "blocks": "where a side has one process, how processes differ is unknown, and faster or slower means beyond the "
    "margin",
}


def comparison_text(
    rows: Sequence[Comparison],
    a: str,
    b: str,
    across: Sequence[str] = (),
    width: int = WIDTH,
    colour: bool = False,
) -> str:
    """Return the table, cells that only one run has, and what the columns mean, in lines of at most `width` letters.

    a, b: names of the runs.
    """
    matched = [row for row in rows if row.verdict not in ONLY_IN_ONE]
    parts: list[Part] = [f"A: {a}", f"B: {b}"]
    parts += [f"across: {', '.join(across)}"] if across else []
    parts += ["", TextTable(_COLUMNS, [row_cells(row) for row in matched], rule=False)]
    names = cell_names(rows)
    cells_of: dict[str, list[str]] = {}  # reason, or the run that has the cell alone → cells
    for row, name in zip(rows, names, strict=True):
        if text := row.verdict if row.verdict in ONLY_IN_ONE else row.reason:
            cells_of.setdefault(text, []).append(name)
    for text, cells in sorted(cells_of.items(), key=lambda item: ONLY_IN_ONE.count(item[0])):
        parts.append(f"{text}: {listed(cells, SHOWN)}")
    return page([*parts, "", *closing_lines(matched)], width, colour)


def interval_text(low: float, high: float, count: int = 3) -> str:
    """Write "from one ratio to the other"; the ends of a few scattered pairs may be millions, which is "> 100"."""
    return f"{'< 0.01' if low < 0.01 else digits(low, count)} to {'> 100' if high > 100 else digits(high, count)}"


def row_cells(row: Comparison) -> list[str]:
    """Return the texts of a row under HEADS."""
    interval = DASH
    if row.low_ratio is not None and row.high_ratio is not None:
        interval = interval_text(row.low_ratio, row.high_ratio, 4)
    ratio = DASH if row.ratio is None else digits(row.ratio, 4)
    times = [DASH if time_s is None else si_time(time_s) for time_s in (row.time_a_s, row.time_b_s)]
    blocks = f"{row.blocks_a}, {row.blocks_b}" if row.blocks_a or row.blocks_b else DASH
    return [row.model, str(row.batch_size), row.precision, row.verdict, ratio, interval, *times, blocks]


def cell_name(row: Comparison | GateCheck) -> str:
    """Name a cell in a few words, without its variant."""
    return f"{row.model} b{row.batch_size} {row.precision}"


def cell_names(rows: Sequence[Comparison]) -> list[str]:
    """Name cells in a few words, each with its variant unless all have the same."""
    several = len({row.variant for row in rows}) > 1
    return [cell_name(row) + (f" ({row.variant})" if several and row.variant else "") for row in rows]


def closing_lines(rows: Sequence[Comparison]) -> list[str]:
    """Return the lines below the table: the verdicts of matched cells, and the meaning of the columns."""
    count = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (FASTER, SLOWER, SAME, UNKNOWN)}
    counts = ", ".join(f"{number} {verdict}" for verdict, number in count.items() if number)
    margins = sorted({row.margin_ratio for row in rows if row.margin_ratio is not None})
    within = f"same means within ±{' or '.join(map(percent, margins))}" if margins else ""
    bases = [text for basis, text in _BASES.items() if any(row.basis == basis for row in rows)]
    meaning = "; ".join(filter(None, (within, *bases)))
    cells = "1 cell" if len(rows) == 1 else f"{len(rows)} cells"
    return [f"{cells} in both: {counts} (significance level 5 % over all of them)", meaning]
