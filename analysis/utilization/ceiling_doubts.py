"""Whether a ceiling was measured on a device that did something else meanwhile: marks for whoever divides by it.

A ceiling that is too low makes every utilization of it too high, and nothing in the cell's own rows shows it. Said here
is what the ceiling's own calls, its session and the cells show. Not claimed: that a ceiling without a
mark is the device's limit; load that was equal all the time leaves no trace but the system's own load average.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.devices.ceilings import best
from analysis.devices.precisions import UNITS
from analysis.utilization.denominators import ceilings_of
from results.records.answers import Utilization
from results.records.cell import Ceiling, Run, Sitting
from results.records.rows import changed

CODE = "ceiling_doubtful"

SLOW_MEDIAN = 0.6
"""The fastest call ÷ the median of all: below this most calls waited for somebody else."""

SLOW_MEAN = 1.5
"""The mean of all calls ÷ their median: above this some calls waited for long."""

LOADED = 1.0
"""Load average ÷ processors before a session on a CPU, from which on no processor was free."""


def loaded(row: Ceiling) -> str:
    """By which of its own numbers a ceiling was measured beside other work; empty for one that was not, or has none."""
    for note in row.reason.removeprefix("note: ").split("; "):
        if note.startswith("others used"):
            return note
    if not row.median_s:
        return ""
    if row.best_s is not None and row.best_s < SLOW_MEDIAN * row.median_s:
        return f"its fastest call took {100 * row.best_s / row.median_s:.3g} % of the median"
    if row.mean_s is not None and row.mean_s > SLOW_MEAN * row.median_s:
        return f"the mean of its calls is {row.mean_s / row.median_s:.3g} × their median"
    return ""


def doubts(ceilings: Sequence[Ceiling], sitting: Sitting | None, run: Run) -> tuple[str, ...]:
    """Why the ceilings that a cell is divided by may be too low, in words. ceilings: of the whole run."""
    here = ceilings_of(run, ceilings)
    fastest = [row for unit in UNITS if unit in (run.convolution_unit, run.matmul_unit) and (row := best(here, unit))]
    causes = [*_untimed(here, run), *map(loaded, fastest)]
    return tuple(dict.fromkeys(filter(None, (*causes, _load(sitting)))))[:SHOWN]


def _untimed(here: Sequence[Ceiling], run: Run) -> Iterator[str]:
    """Which kinds of kernels that the cell runs were tried and not timed: the best of the others may be too low."""
    for operation, unit in (("convolution", run.convolution_unit), ("matmul", run.matmul_unit)):
        rows = [row for row in here if (row.operation, row.unit) == (operation, unit)]
        failed = next((row for row in rows if row.status != "ok"), None)
        if failed is not None and not any(row.status == "ok" and row.flop_per_s for row in rows):
            yield f"no {operation} of {unit} was timed ({failed.reason or failed.status})"


SHOWN = 2
"""Doubts that one row is marked with."""


def _load(sitting: Sitting | None) -> str:
    facts: Mapping[str, Any] = sitting.preflight if sitting is not None else {}
    load, processors = facts.get("load_1min"), facts.get("cpu_usable")
    if not isinstance(load, (int, float)) or not isinstance(processors, (int, float)) or not processors:
        return ""
    loaded = load >= LOADED * processors
    return f"a load of {load:.2g} on {processors} processors when its sitting began" if loaded else ""


def marked(
    rows: Sequence[Utilization],
    runs: Mapping[tuple[str, int], Run],
    ceilings: Sequence[Ceiling],
    sittings: Iterable[Sitting],
) -> Iterator[Utilization]:
    """The rows, those of a ceiling with a mark where it is doubtful. runs: attempt → its row."""
    known = {sitting.sitting: sitting for sitting in sittings}
    beaten, told = _beaten(rows, runs), dict[tuple[str, ...], tuple[str, ...]]()
    for row in rows:
        run = runs.get((row.cell_id, row.attempt)) if row.denominator == "ceiling" else None
        if row.peak_flop_per_s is None or run is None:
            yield row
            continue
        units = run.convolution_unit, run.matmul_unit
        key = run.sitting, run.device, run.malloc, run.precision, *units  # all that doubts look at
        if key not in told:
            told[key] = doubts(ceilings, known.get(run.sitting), run)
        why = list(told[key])
        above = beaten.get((run.sitting, run.device, row.peak_flop_per_s))
        if above is not None and (row.utilization_ratio or 0.0) <= 1:
            why.append(f"another cell reaches {above:.3g} × of it")
        yield changed(row, {"warnings": (*row.warnings, f"{CODE}: {'; '.join(why)}")}) if why else row


def _beaten(rows: Iterable[Utilization], runs: Mapping[tuple[str, int], Run]) -> dict[tuple[str, str, float], float]:
    """Ceilings that a cell's exact count is above: session, device and rate → the highest fraction of it."""
    found: dict[tuple[str, str, float], float] = {}
    for row in rows:
        ratio = row.utilization_ratio
        if row.denominator != "ceiling" or row.method != "exact" or ratio is None or ratio <= 1:
            continue
        run = runs.get((row.cell_id, row.attempt))
        if run is not None:
            key = (run.sitting, run.device, row.peak_flop_per_s or 0.0)
            found[key] = max(ratio, found.get(key, 0.0))
    return found
