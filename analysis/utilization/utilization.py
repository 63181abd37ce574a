"""The fraction of a peak that training reaches: every numerator over every denominator, one row each.

utilization = model FLOP of a step ÷ (step time × peak). Its interval is that of the step time; counts are exact and
peaks are as published or measured, without an interval of their own. Over a paired ceiling the interval is that of the
ratio. The methods one, batch and epoch divide the FLOP of their work by its own time, which was taken without a
profiler. A ratio above 1 is kept and explained, never clamped, and an absent half of the fraction is a row with its
reason. Pure: raw records in, rows out.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, variance
from typing import Any

from analysis.devices import telemetry
from analysis.devices.precisions import TENSOR_UNITS
from analysis.operators.attention_conventions import BY_RULE, CONVENTIONS
from analysis.utilization.denominators import Denominator
from analysis.utilization.numerators import PROFILED_METHODS, Numerator
from analysis.utilization.step_times import PairedCeiling, StepBlocks, paired_ceiling, step_blocks, whole_steps
from analysis.utilization.work_times import WORKS_OF_METHODS, blocks_of, variant, work_times
from results.errors import Unavailable
from results.records.answers import Utilization, WorkTime
from results.records.cell import Run, Sample, Telemetry, identity
from results.records.rows import MEASURED, WORKS, changed

__all__ = ["MeanStepTime", "Measurement", "limits_seen", "measurement", "rows", "variant"]

EXACT = "exact"
"""The method whose count is the step's own."""

PAIRED = "paired_ceiling"
"""The denominator that was timed between the cell's blocks."""

DRIFT_RATIO = 0.01
"""Relative change of the step time within a cell from which it is worth a note."""

HARMLESS_REASONS = ("gpu_idle", "applications_clocks_setting", "display_clock_setting")
"""Event reasons that say nothing about a limit the device ran into."""


@dataclass(frozen=True)
class MeanStepTime:
    """Mean time of one step with its 95 % interval, seconds; None where a single block gives none.

    steps: how many were timed. drift: a note if the step became slower or faster while it was timed, else empty.
    """

    mean_s: float
    low_s: float | None
    high_s: float | None
    steps: int
    drift: str = ""


@dataclass(frozen=True)
class Measurement:
    """What was observed of one cell: its row, the time of its step, and what telemetry says about the window.

    power_w: energy of the window ÷ its length. A window also holds steps between the timed blocks, so that energy per
    step is this power times the step time, never the energy over the timed steps.
    works: work → its row of work_times.csv, of the works that the run's methods ask for.
    one_clock_hz: mean SM clock over the blocks of one sample, which have a window of their own.
    paired: the ceiling that was timed between the blocks. Then the window's energy is not that of steps alone, and
    power_w is None. blocks: those of whole steps, which `time` is of. power_capped_ratio: share of the window's polls
    in which the power limit held the clock.
    """

    run: Run
    time: MeanStepTime | None
    clock_hz: float | None = None
    power_w: float | None = None
    notes: tuple[str, ...] = ()
    works: Mapping[str, WorkTime] = field(default_factory=dict)
    one_clock_hz: float | None = None
    paired: PairedCeiling | None = None
    blocks: StepBlocks | None = None
    power_capped_ratio: float | None = None

    @functools.cached_property
    def blank(self) -> Utilization:
        """A row that says which cell it is of, and nothing more."""
        return Utilization(
            **identity(self.run, Utilization),
            variant=variant(self.run),
            method="",
            numerator_source="",
            denominator="",
            status="",
        )


def measurement(run: Run, samples: Sequence[Sample], readings: Iterable[Telemetry]) -> Measurement:
    """Summarises one cell's own samples and telemetry; those of other cells are left out.

    Energy is what the run row says, else what the readings give for its window.
    """
    cell_id, attempt = run.cell_id, run.attempt
    timed = [sample for sample in samples if (sample.cell_id, sample.attempt) == (cell_id, attempt)]
    own = [reading for reading in readings if (reading.cell_id, reading.attempt) == (cell_id, attempt)]
    blocks = step_blocks(whole_steps(timed), run.interval_rule)
    time = None
    if blocks is not None:
        summary, drift = blocks.summary, _drift(blocks.means_s, blocks.summary.drift_ratio)
        time = MeanStepTime(summary.mean, summary.low, summary.high, sum(blocks.steps), drift)
    works = {row.work: row for row in work_times(run, timed)}
    one_clock_hz = _clock_of(blocks_of(timed, "one"), own)
    paired = paired_ceiling(timed, run.interval_rule)
    start_s, end_s = run.window_start_s, run.window_end_s
    if start_s is None or end_s is None or not end_s > start_s:
        return Measurement(run, time, works=works, one_clock_hz=one_clock_hz, paired=paired, blocks=blocks)
    clock_hz = telemetry.mean_sm_clock_hz(own, start_s, end_s)
    energy_j = run.energy_j if run.energy_j is not None else telemetry.energy(own, start_s, end_s).joules
    power_w = None if energy_j is None or paired is not None else energy_j / (end_s - start_s)
    shares = telemetry.event_shares(own, start_s, end_s)
    capped = None if shares is None else shares.get("sw_power_cap", 0.0)
    notes = limits_seen(shares or {})
    return Measurement(run, time, clock_hz, power_w, notes, works, one_clock_hz, paired, blocks, capped)


def _clock_of(blocks: Sequence[Sample], readings: Sequence[Telemetry]) -> float | None:
    """Mean SM clock from the first block's start to the last one's end; None without blocks or readings around them."""
    if not blocks:
        return None
    end_s = max(block.start_s + block.wall_s for block in blocks)
    return telemetry.mean_sm_clock_hz(readings, min(block.start_s for block in blocks), end_s)


def _drift(means_s: Sequence[float], drift_ratio: float | None) -> str:
    """A note on a drift of more than 1 % that stands out of the noise: heat, power or a neighbour.

    Out of the noise: more than three standard errors of the difference between the first and the last third.
    """
    third = len(means_s) // 3
    if drift_ratio is None or third < 2 or abs(drift_ratio) <= DRIFT_RATIO:
        return ""
    first, last = means_s[:third], means_s[-third:]
    error_s = math.sqrt((variance(first) + variance(last)) / third)
    if abs(fmean(last) - fmean(first)) <= 3 * error_s:
        return ""
    return f"drift: the last third of the blocks took {100 * drift_ratio:+.1f} % against the first"


def limits_seen(shares: Mapping[str, float]) -> tuple[str, ...]:
    """One note for each event (throttle) reason that lowered clocks in a window. shares: reason → that of the polls."""
    return tuple(
        f"clock_limited: {reason} in {100 * share:.0f} % of polls"
        for reason, share in shares.items()
        if reason not in HARMLESS_REASONS
    )


def rows(
    measured: Measurement,
    numerators: Iterable[Numerator],
    denominators: Sequence[Denominator],
    of_one: Sequence[Denominator] | None = None,
) -> list[Utilization]:
    """utilization.csv of one cell: each numerator over each denominator, in order; a paired ceiling is the last.

    of_one: the denominators of the method one, whose sample was timed at a clock of its own; None: the same.
    """
    numerators = list(numerators)
    exact = next((each for each in numerators if each.method == EXACT and each.model_flop), None)
    paired = [Denominator(PAIRED)] if measured.paired is not None else []
    table: list[Utilization] = []
    for over in numerators:
        own = denominators if over.method != "one" or of_one is None else of_one
        table += _rows_of(measured, over, [*own, *paired], exact)
    return table


def _rows_of(
    measured: Measurement, over: Numerator, denominators: Iterable[Denominator], exact: Numerator | None
) -> Iterator[Utilization]:
    """One numerator over each denominator; what these rows share is put together once."""
    time, *_ = standing = _standing(measured, over.method)
    names = CONVENTIONS[1:] if over.less else ()
    others = {name: by_unit for name in names if (by_unit := over.by_convention(name)) is not None}
    row: dict[str, Any] = {
        "method": over.method,
        "numerator_source": over.source,
        "model_flop": over.model_flop,
        "all_flop": over.all_flop,
        "at_least_flop": over.at_least_flop,
        "unknown_calls": over.unknown_calls,
        "unknown_time_ratio": over.unknown_time_ratio,
        "attention": over.attention,
        "power_capped_ratio": measured.power_capped_ratio,
    }
    row |= {f"{name}_flop": sum(by_unit.values()) for name, by_unit in others.items()}
    if time is not None:
        row |= _rates(measured, over.method, time)
    shared, marks = changed(measured.blank, row), (*_cell_marks(measured, over.method), *over.warnings)
    for under in denominators:
        status, reason, own = _fraction(measured, over, under, standing)
        own["denominator"], own["status"], own["reason"] = under.name, status, reason
        own["warnings"] = marks + _surprises(measured, own, over, under, exact)
        for name in BY_RULE if others else ():  # what a kernel computes is no model FLOP, and is divided by no peak
            if name in others:
                _, _, other = _fraction(measured, replace(over, flop_by_unit=others[name]), under, standing)
                own[f"{name}_utilization_ratio"] = other.get("utilization_ratio")
        yield changed(shared, own)


Standing = tuple[MeanStepTime | None, str, str]
"""The time that belongs to a numerator, of a cell that was measured; status and reason of a row over it."""


def _standing(measured: Measurement, method: str) -> Standing:
    """The time to divide by: that of its pass for a profiled method, else that of a step."""
    run, work = measured.run, measured.works.get(method)
    if run.status not in MEASURED:
        return None, run.status, run.reason
    if method in PROFILED_METHODS and work is not None:
        if work.time_s is None:
            return None, work.status, work.reason
        time = MeanStepTime(work.time_s, work.low_s, work.high_s, work.steps or 0)
        return time, work.status, work.reason if work.status != "ok" else ""
    if method in PROFILED_METHODS or measured.time is None:
        return None, "invalid", "no measured block of steps"
    return measured.time, run.status, run.reason


def _cell_marks(measured: Measurement, method: str) -> tuple[str, ...]:
    """The warnings of a run, that it was a quick one, that its steps drifted and what held the clock down.

    The last two were seen while the cell's own steps were timed; they say nothing of one sample. Nor does a warning
    about one work ("one: …", "profile: last: …") say anything of a method that does not need it.
    """
    run, others = measured.run, {*WORKS} - {*WORKS_OF_METHODS.get(method, ())}
    marks = tuple(mark for mark in run.warnings if mark.removeprefix("profile: ").partition(":")[0] not in others)
    if run.quick and not any(mark.startswith("quick") for mark in marks):
        marks += ("quick: measured for a fifth of the usual time",)
    if method == "one":
        return marks
    drift = (measured.time.drift,) if measured.time is not None and measured.time.drift else ()
    return (*marks, *drift, *measured.notes)


def _rates(measured: Measurement, method: str, time: MeanStepTime) -> dict[str, float | None]:
    """Time, items and energy: what does not depend on a count. Energy was taken over the cell's own steps alone.

    Items in what a method counts: as many a sample as a step of the cell has.
    """
    run, work = measured.run, measured.works.get(method)
    items: float | None = run.items_per_step
    if method in PROFILED_METHODS and items is not None:
        items = None if work is None or work.items is None else work.items * items / run.batch_size
    power_w = measured.power_w if method not in ("one", "epoch") else None
    return {
        "time_s": time.mean_s,
        "time_low_s": time.low_s,
        "time_high_s": time.high_s,
        "items_per_s": items / time.mean_s if items else None,
        "energy_per_item_j": power_w * time.mean_s / items if power_w is not None and items else None,
    }


def _fraction(
    measured: Measurement, over: Numerator, under: Denominator, standing: Standing
) -> tuple[str, str, dict[str, Any]]:
    """Status, reason and the columns that hold the ratio, as far as its halves are known. standing: of the method.

    Over the ceiling that was timed beside the steps the interval is that of the ratio, and the peak is the one that
    gives the ratio with the cell's step time.
    """
    (time, *stands), flop, paired = standing, over.model_flop, measured.paired
    known: dict[str, Any] = {}
    peak, absent = None, ""
    if under.name != PAIRED:
        try:
            peak = under.peak(over.flop_by_unit)
            known = {"peak_flop_per_s": peak, "peak_source": under.source(over.flop_by_unit)}
        except Unavailable as fault:
            absent = str(fault)
    elif measured.run.status in MEASURED and (paired is None or over.method in PROFILED_METHODS):
        return "unavailable", "a ceiling was timed beside the cell's own steps alone", {}
    if time is None:
        return stands[0], stands[1], known
    if flop is None:
        return "unavailable", over.reason, known
    known["achieved_flop_per_s"] = flop / time.mean_s
    if under.name == PAIRED and paired is not None:
        try:
            ratio = paired.utilization(over.flop_by_unit)
        except Unavailable as fault:
            return "unavailable", str(fault), known
        known |= {"peak_flop_per_s": flop / (time.mean_s * ratio.ratio), "utilization_ratio": ratio.ratio}
        known |= {"peak_source": paired.source(over.flop_by_unit)}
        known |= {"utilization_low_ratio": ratio.low, "utilization_high_ratio": ratio.high}
    elif peak is None:
        return "unavailable", absent, known
    else:
        known["utilization_ratio"] = flop / (time.mean_s * peak)
        known["utilization_low_ratio"] = flop / (time.high_s * peak) if time.high_s else None
        known["utilization_high_ratio"] = flop / (time.low_s * peak) if time.low_s else None
    return stands[0], stands[1], known


def _surprises(
    measured: Measurement,
    fraction: Mapping[str, Any],
    over: Numerator,
    under: Denominator,
    exact: Numerator | None,
) -> tuple[str, ...]:
    """What a ratio above 1 means: the counter's fault where the exact count of the same steps stays at or below 1."""
    ratio = fraction.get("utilization_ratio")
    if ratio is None or ratio <= 1:
        return ()
    by_exact = None  # of one sample and of an epoch there is none: their steps and times are others
    if exact is not None and over.method not in ("one", "epoch"):
        _, _, of_exact = _fraction(measured, exact, under, _standing(measured, exact.method))
        by_exact = of_exact.get("utilization_ratio")
    if over is not exact and by_exact is not None and by_exact <= 1:
        counts = f"by its count the cell reaches {ratio:.4g} × this peak, by the exact count {by_exact:.4g} ×"
        return (f"counter_too_high: {over.source}: {counts}",)
    if under.name in ("ceiling", PAIRED):
        return (f"ceiling_too_low: the cell reaches {ratio:.3g} × the measured ceiling",)
    tensor = [unit for unit in TENSOR_UNITS if over.flop_by_unit.get(unit)]
    if tensor:
        return (f"above_one: {ratio:.3g} on {', '.join(tensor)} is an error in numerator or denominator",)
    return (f"above_one: {ratio:.3g} without tensor units: a fast algorithm such as Winograd, or an error",)
