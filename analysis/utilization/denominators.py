"""Provides the peaks to divide by, each with its source: datasheet, datasheet at the observed clock, ceilings, user.

`denominators` returns a cell's peaks as `Denominator`s: dense FLOP/s by the unit that runs an operation. `datasheet`
takes the exact device name. An unknown peak is absent with a reason; there is no default and no partial sum. A ceiling
(highest rate measured on this device) is too low if other processes ran meanwhile, and makes utilizations too high.
`marked` takes utilization rows, and yields them with a warning where the ceiling's calls, its session or the cells show
such load. Not claimed: that an unmarked ceiling is the device's limit; constant load shows only in the system's load
average.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.devices import ceilings as devices_ceilings
from analysis.devices import peaks
from analysis.devices.ceilings import best
from analysis.devices.precisions import UNITS
from results.errors import Unavailable
from results.records.answers import Utilization
from results.records.cell import Ceiling, Run, SessionRow
from results.records.rows import replace_fields


@dataclass(frozen=True)
class Denominator:
    """FLOP/s by unit. sources: unit → source of its peak. reason: why there is no peak at all, if so.

    clock_hz: unit → the clock that a datasheet's figure implies. device: the row of a datasheet. refused: unit → why
    its measurement is not a peak.
    """

    name: str
    peak_by_unit: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    clock_hz: Mapping[str, float] = field(default_factory=dict)
    device: peaks.Device | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def peak(self, flop_by_unit: Mapping[str, int]) -> float:
        """Return ΣF / Σ(F/P) in FLOP/s: the rate of a step whose every part runs at the peak of its own unit.

        Raises Unavailable for a unit with FLOP and no peak, or without any FLOP.
        """
        flop_of = {unit: flop for unit, flop in flop_by_unit.items() if flop}
        if not flop_of:
            raise Unavailable("no model FLOP to divide")
        if self.reason:
            raise Unavailable(self.reason)
        for unit, flop in flop_of.items():
            if unit in self.refused:
                mark = f"{devices_ceilings.ABOVE_SHEET}: " if self.name == "ceiling" else ""
                raise Unavailable(f"{mark}{self.refused[unit]}")
            if unit not in self.peak_by_unit:
                known = ", ".join(sorted(self.peak_by_unit)) or "none"
                raise Unavailable(f"no {self.name} peak for {unit}, which does {flop} FLOP; known units: {known}")
        return sum(flop_of.values()) / sum(flop / self.peak_by_unit[unit] for unit, flop in flop_of.items())

    def source(self, flop_by_unit: Mapping[str, int]) -> str:
        """Return the sources of the peaks of these units, each named once."""
        needed = [self.sources[unit] for unit, flop in sorted(flop_by_unit.items()) if flop and unit in self.sources]
        return "; ".join(dict.fromkeys(needed))


def ceilings_of(run: Run, ceilings: Iterable[Ceiling]) -> list[Ceiling]:
    """Select the ceilings of a run's session, device and allocator."""
    of_run = run.session, run.device, run.malloc
    return [row for row in ceilings if (row.session, row.device, row.malloc) == of_run]


def denominators(peaks: Sequence[Denominator], clock_hz: float | None, capped: bool) -> tuple[Denominator, ...]:
    """Return the denominators of one cell: datasheet, clock, ceiling and user, and for a power-capped cell the
    sustained ceiling where it is known.

    peaks: datasheet, ceiling, user and sustained ceiling of its session and device. clock_hz: mean SM clock of the
    window, None if none was observed.
    """
    sheet, ceiling, given, sustained = peaks
    return (
        sheet,
        clock_denominator(sheet, clock_hz),
        ceiling,
        given,
        *((sustained,) if capped and sustained.peak_by_unit else ()),
    )


def of_ranks(single: Denominator, ranks: int, measured: Sequence[Mapping[str, float]] = ()) -> Denominator:
    """Return the peak of several devices of one kind: the sum of their ceilings, or a multiple of one device's.

    measured: of each rank, unit → FLOP/s of its ceiling; a multiple is used where not all have a unit, and for other
    peaks.
    """
    if ranks == 1:
        return single
    values, sources = {}, {}
    for unit, peak in single.peak_by_unit.items():
        every = [rank[unit] for rank in measured if unit in rank]
        added = single.name == "ceiling" and len(every) == ranks
        values[unit] = sum(every) if added else ranks * peak
        word = f"{ranks} ranks, of the first:" if added else f"{ranks} ×"
        sources[unit] = f"{word} {single.sources[unit]}"
    return replace(single, peak_by_unit=values, sources=sources)


def datasheet(device_name: str, device: str, multiprocessors: int | None = None) -> Denominator:
    """Return dense peaks as printed, by exact name. device: "cpu", "cuda", …; multiprocessors: as the device reports
    them."""
    if device.startswith("cpu"):
        return Denominator("datasheet", reason="a CPU has no datasheet peak here: use the measured ceiling")
    known = peaks.lookup(device_name, multiprocessors)
    if known is None:
        names = ", ".join(peaks.nearest(device_name)) or "none"
        why = peaks.name_refusal(device_name) or f"nearest names: {names}"
        return Denominator("datasheet", reason=f"no datasheet peak for {device_name!r}; {why}")
    values = {unit: known.peaks[unit] for unit in UNITS if unit in known.peaks}
    marks = {unit: " (figure from memory)" if known.verified.get(unit) == "memory" else "" for unit in values}
    sources = {unit: f"{unit} dense: {known.source}{marks[unit]}" for unit in values}
    return Denominator("datasheet", values, sources, clock_hz=dict(known.clock_hz), device=known)


def clock_denominator(sheet: Denominator, clock_hz: float | None) -> Denominator:
    """Return the datasheet's peak × observed SM clock ÷ the clock that the datasheet's number implies for that unit."""
    if sheet.reason:
        return Denominator("clock", reason=sheet.reason)
    if not clock_hz:
        return Denominator("clock", reason="no SM clock was observed while this cell was timed")
    values, sources = {}, {}
    for unit in (unit for unit in sheet.peak_by_unit if unit in sheet.clock_hz):
        values[unit] = sheet.peak_by_unit[unit] * clock_hz / sheet.clock_hz[unit]
        clocks = f"{clock_hz / 1e6:.0f} of {sheet.clock_hz[unit] / 1e6:.0f} MHz"
        sources[unit] = f"{sheet.sources[unit]}, at {clocks}"
    return Denominator("clock", values, sources)


def ceiling_of(
    ceilings: Sequence[Ceiling],
    known: peaks.Device | None = None,
    highest_hz: float | None = None,
    sustained: bool = False,
) -> Denominator:
    """Return the best rate of matrix products and convolutions on this device in this session, by unit.

    known: the device's row of peaks, highest_hz: its highest SM clock: a unit with a kernel faster than possible has no
    ceiling. sustained: from kernels that ran back to back for seconds.
    """
    values, sources, refused = {}, {}, {}
    for unit in UNITS:
        best = devices_ceilings.best(ceilings, unit, sustained)
        if best is None or not best.flop_per_s:
            continue
        if why := devices_ceilings.impossible(ceilings, unit, known, highest_hz):
            refused[unit] = why
            continue
        values[unit] = best.flop_per_s
        how = ", measured back to back here" if sustained else ", measured here"
        sources[unit] = f"{unit} {best.operation} {best.shape} {best.layout}".strip() + how
    # The gate `rebuilt` compares this text with utilization.csv of earlier runs, so its words stay.
    reason = "" if values or refused else "no ceiling was measured on this device in this session"
    return Denominator("sustained" if sustained else "ceiling", values, sources, reason, refused=refused)


def user(peak_tflops: float | None) -> Denominator:
    """Return the peak that the user gives, the same for every unit. peak_tflops: in 10^12 FLOP/s."""
    if peak_tflops is None:
        return Denominator("user", reason="no peak was given (--peak-tflops)")
    return Denominator("user", dict.fromkeys(UNITS, peak_tflops * 1e12), dict.fromkeys(UNITS, "--peak-tflops"))


CODE = "ceiling_doubtful"

SLOW_MEDIAN = 0.6
"""Fastest call ÷ median of all calls. Below this ratio, most calls waited for another process."""

SLOW_MEAN = 1.5
"""Mean of all calls ÷ their median. Above this ratio, some calls waited for long."""

LOADED = 1.0
"""Load average ÷ processors before a session on a CPU. From this ratio on, no processor was free."""


def loaded(row: Ceiling) -> str:
    """Return why a ceiling's row shows that it was measured under load; "" if it does not."""
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


def doubts(ceilings: Sequence[Ceiling], session: SessionRow | None, run: Run) -> tuple[str, ...]:
    """Return up to SHOWN reasons why a cell's ceilings may be too low. ceilings: of the whole run."""
    here = ceilings_of(run, ceilings)
    fastest = [row for unit in UNITS if unit in (run.convolution_unit, run.matmul_unit) and (row := best(here, unit))]
    causes = [*_untimed(here, run), *map(loaded, fastest)]
    return tuple(dict.fromkeys(filter(None, (*causes, _load(session)))))[:SHOWN]


def _untimed(here: Sequence[Ceiling], run: Run) -> Iterator[str]:
    """Yield a reason for each kind of kernel that the cell runs and that could not be timed: the best of the other
    kinds may be too low."""
    for operation, unit in (("convolution", run.convolution_unit), ("matmul", run.matmul_unit)):
        rows = [row for row in here if (row.operation, row.unit) == (operation, unit)]
        failed = next((row for row in rows if row.status != "ok"), None)
        if failed is not None and not any(row.status == "ok" and row.flop_per_s for row in rows):
            yield f"no {operation} of {unit} was timed ({failed.reason or failed.status})"


SHOWN = 2
"""Maximum number of doubts in one row's mark."""


def _load(session: SessionRow | None) -> str:
    facts: Mapping[str, Any] = session.preflight if session is not None else {}
    load, processors = facts.get("load_1min"), facts.get("cpu_usable")
    if not isinstance(load, (int, float)) or not isinstance(processors, (int, float)) or not processors:
        return ""
    loaded = load >= LOADED * processors
    return f"a load of {load:.2g} on {processors} processors when its session began" if loaded else ""


def marked(
    rows: Sequence[Utilization],
    runs: Mapping[tuple[str, int], Run],
    ceilings: Sequence[Ceiling],
    sessions: Iterable[SessionRow],
) -> Iterator[Utilization]:
    """Yield the rows, marking those whose ceiling is doubtful. runs: attempt → its row."""
    known = {session.session: session for session in sessions}
    beaten, reasons = _beaten(rows, runs), dict[tuple[str, ...], tuple[str, ...]]()
    for row in rows:
        run = runs.get((row.cell_id, row.attempt)) if row.denominator == "ceiling" else None
        if row.peak_flop_per_s is None or run is None:
            yield row
            continue
        units = run.convolution_unit, run.matmul_unit
        key = run.session, run.device, run.malloc, run.precision, *units  # all that doubts look at
        if key not in reasons:
            reasons[key] = doubts(ceilings, known.get(run.session), run)
        why = list(reasons[key])
        above = beaten.get((run.session, run.device, row.peak_flop_per_s))
        if above is not None and (row.utilization_ratio or 0.0) <= 1:
            why.append(f"another cell reaches {above:.3g} × of it")
        yield replace_fields(row, {"warnings": (*row.warnings, f"{CODE}: {'; '.join(why)}")}) if why else row


def _beaten(rows: Iterable[Utilization], runs: Mapping[tuple[str, int], Run]) -> dict[tuple[str, str, float], float]:
    """Return ceilings that a cell's exact count exceeds: session, device and rate → the highest fraction of it."""
    beaten: dict[tuple[str, str, float], float] = {}
    for row in rows:
        ratio = row.utilization_ratio
        if row.denominator != "ceiling" or row.method != "exact" or ratio is None or ratio <= 1:
            continue
        run = runs.get((row.cell_id, row.attempt))
        if run is not None:
            key = (run.session, run.device, row.peak_flop_per_s or 0.0)
            beaten[key] = max(ratio, beaten.get(key, 0.0))
    return beaten
