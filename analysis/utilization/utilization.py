"""Computes the fraction of a peak that training reaches: every numerator over every denominator, one row each.

    utilization = model FLOP of a step ÷ (step time × peak)

`rows` takes a cell's `Measurement`, numerators and denominators, and returns `Utilization` rows. Their interval is that
of the step time, since counts are exact and peaks have no interval. A paired ceiling is a peak that was measured
between the cell's blocks of steps; the interval is then that of the ratio. The methods one, batch and epoch have the
FLOP that a profiler recorded of a sample, a batch or an epoch. They divide by that pass's time without a profiler. A
ratio above 1 is kept and explained, never clamped. If FLOP, time or peak is missing, the row has the reason.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, variance
from typing import Any

from analysis.devices import telemetry
from analysis.devices.precisions import PRECISIONS, TENSOR_UNITS
from analysis.operators.attention_conventions import BY_RULE, CONVENTIONS
from analysis.stats.summary import Summary
from analysis.utilization.denominators import Denominator
from analysis.utilization.numerators import PROFILED_METHODS, Numerator
from analysis.utilization.step_times import PairedCeiling, block_means_s, block_summary, paired_ceiling, whole_steps
from analysis.utilization.work_times import PASSES_OF_METHODS, variant, work_times
from results.errors import Unavailable
from results.records.answers import Utilization, WorkTime
from results.records.cell import MEASURED, PASSES, Run, Sample, Telemetry, identity
from results.records.rows import replace_fields

EXACT = "exact"
"""The method that counts this very step."""

PAIRED = "paired_ceiling"
"""The denominator whose kernels were timed between the cell's blocks of steps."""

DRIFT_RATIO = 0.01
"""Least relative change of the step time within a cell that is noted."""

HARMLESS_REASONS = ("gpu_idle", "applications_clocks_setting", "display_clock_setting")
"""Throttle reasons that show no limit of the device."""


@dataclass(frozen=True)
class MeanStepTime:
    """Mean time of one step with its 95 % interval, seconds; a single block gives no interval (None).

    steps: number timed. drift: a note if the step became slower or faster while it was timed, else empty.
    """

    mean_s: float
    low_s: float | None
    high_s: float | None
    steps: int
    drift: str = ""


@dataclass(frozen=True)
class Measurement:
    """Observations of one cell: its row, the time of its step, and the window's telemetry.

    power_w: energy of the window ÷ its length. A window also holds steps between the timed blocks, so that energy per
    step is this power times the step time, never the energy over the timed steps. passes: pass → its row of
    work_times.csv, of the passes that the run's methods need. sample_clock_hz: mean SM clock over the blocks of one
    sample, a separate window. paired: the ceiling timed between the blocks; then the window's energy includes
    it, and power_w is None. summary: of the blocks of whole steps; `time` has its mean. power_capped_ratio: share of
    the window's polls in which the power limit held the clock.
    """

    run: Run
    time: MeanStepTime | None
    clock_hz: float | None = None
    power_w: float | None = None
    notes: tuple[str, ...] = ()
    passes: Mapping[str, WorkTime] = field(default_factory=dict)
    sample_clock_hz: float | None = None
    paired: PairedCeiling | None = None
    summary: Summary | None = None
    power_capped_ratio: float | None = None


def measurement(run: Run, samples: Sequence[Sample], readings: Sequence[Telemetry]) -> Measurement:
    """Summarise one cell's samples and telemetry. Energy is that of the run row, else that of the window's readings."""
    time, summary, blocks = None, None, whole_steps(samples)
    if blocks:
        summary = block_summary(blocks, run.interval_rule)
        drift = _drift(block_means_s(blocks), summary.drift_ratio)
        time = MeanStepTime(summary.mean, summary.low, summary.high, sum(block.steps for block in blocks), drift)
    paired = paired_ceiling(samples, run.interval_rule)
    known: dict[str, Any] = {"passes": {row.work: row for row in work_times(run, samples)}}
    if sample_blocks := [s for s in samples if s.work == "one" and s.part == "measure" and not s.phase and s.steps > 0]:
        ends_s = (
            min(block.start_s for block in sample_blocks),
            max(block.start_s + block.wall_s for block in sample_blocks),
        )
        known["sample_clock_hz"] = telemetry.mean_sm_clock_hz(readings, *ends_s)
    start_s, end_s = run.window_start_s, run.window_end_s
    if start_s is not None and end_s is not None and end_s > start_s:
        energy_j = run.energy_j if run.energy_j is not None else telemetry.energy(readings, start_s, end_s).joules
        shares = telemetry.event_shares(readings, start_s, end_s)
        known |= {
            "clock_hz": telemetry.mean_sm_clock_hz(readings, start_s, end_s),
            "power_w": None if energy_j is None or paired is not None else energy_j / (end_s - start_s),
            "notes": limits_seen(shares or {}),
            "power_capped_ratio": None if shares is None else shares.get("sw_power_cap", 0.0),
        }
    return Measurement(run, time, paired=paired, summary=summary, **known)


def _drift(means_s: Sequence[float], drift_ratio: float | None) -> str:
    """Return a note on a drift of more than 1 % that exceeds three standard errors of the difference between the first
    and the last third; "" without one. Its cause may be heat, power or another process."""
    third = len(means_s) // 3
    if drift_ratio is None or third < 2 or abs(drift_ratio) <= DRIFT_RATIO:
        return ""
    first, last = means_s[:third], means_s[-third:]
    error_s = math.sqrt((variance(first) + variance(last)) / third)
    if abs(fmean(last) - fmean(first)) <= 3 * error_s:
        return ""
    return f"drift: the last third of the blocks took {100 * drift_ratio:+.1f} % against the first"


def limits_seen(shares: Mapping[str, float]) -> tuple[str, ...]:
    """Write one note for each event (throttle) reason that lowered clocks in a window. shares: reason → share of the
    polls."""
    return tuple(
        f"clock_limited: {reason} in {100 * share:.0f} % of polls"
        for reason, share in shares.items()
        if reason not in HARMLESS_REASONS
    )


def rows(
    measured: Measurement,
    numerators: Iterable[Numerator],
    denominators: Sequence[Denominator],
    sample_denominators: Sequence[Denominator] | None = None,
) -> list[Utilization]:
    """Return one cell's rows of utilization.csv: each numerator over each denominator, in order, a paired ceiling last.

    sample_denominators: for the method one, as its sample was timed at another clock; None: `denominators`.
    """
    numerators, run = list(numerators), measured.run
    exact = next((numerator for numerator in numerators if numerator.method == EXACT and numerator.model_flop), None)
    paired = [Denominator(PAIRED)] if measured.paired is not None else []
    cell = {**identity(run, Utilization), "variant": variant(run), "power_capped_ratio": measured.power_capped_ratio}
    blank = Utilization(**cell, method="", numerator_source="", denominator="")
    table: list[Utilization] = []
    for numerator in numerators:
        time, *_ = standing = _standing(measured, numerator.method)
        names = CONVENTIONS[1:] if numerator.less else ()
        others = {name: by_unit for name in names if (by_unit := numerator.by_convention(name)) is not None}
        row: dict[str, Any] = {f"{name}_flop": sum(by_unit.values()) for name, by_unit in others.items()}
        row |= {name: getattr(numerator, name) for name in _OF_NUMERATOR} | {"numerator_source": numerator.source}
        row |= {} if time is None else _rates(measured, numerator.method, time)
        shared, marks = replace_fields(blank, row), (*_cell_marks(measured, numerator.method), *numerator.warnings)
        for denominator in (
            *(denominators if numerator.method != "one" or sample_denominators is None else sample_denominators),
            *paired,
        ):
            status, reason, own = _fraction(measured, numerator, denominator, standing)
            own |= {"denominator": denominator.name, "status": status, "reason": reason}
            own["warnings"] = marks + _surprises(measured, own, numerator, denominator, exact)
            for name in BY_RULE if others else ():  # what a kernel computes is not model FLOP: no peak divides it
                if name in others:
                    _, _, other = _fraction(
                        measured, replace(numerator, flop_by_unit=others[name]), denominator, standing
                    )
                    own[f"{name}_utilization_ratio"] = other.get("utilization_ratio")
            table.append(replace_fields(shared, own))
    return table


_OF_NUMERATOR = (
    *("method", "model_flop", "all_flop", "at_least_flop", "unknown_calls", "unknown_time_ratio", "attention"),
)
"""A row's columns that are fields of its numerator."""

Standing = tuple[MeanStepTime | None, str, str]
"""(time that a numerator is divided by, None if it was not measured; status and reason of the rows)."""


def _standing(measured: Measurement, method: str) -> Standing:
    """Return the time to divide by: that of its pass for a profiled method, else that of a step."""
    run, pass_time = measured.run, measured.passes.get(method)
    if run.status not in MEASURED:
        return None, run.status, run.reason
    if method in PROFILED_METHODS and pass_time is not None:
        if pass_time.time_s is None:
            return None, pass_time.status, pass_time.reason
        time = MeanStepTime(pass_time.time_s, pass_time.low_s, pass_time.high_s, pass_time.steps or 0)
        return time, pass_time.status, pass_time.reason if pass_time.status != "ok" else ""
    if method in PROFILED_METHODS or measured.time is None:
        return None, "invalid", "no measured block of steps"
    return measured.time, run.status, run.reason


def _cell_marks(measured: Measurement, method: str) -> tuple[str, ...]:
    """Return a run's warnings, and whether it was quick, its steps drifted, or a limit held the clock down.

    The last two concern the cell's own steps, not one sample. A warning about one pass ("one: …", "profile: last: …")
    is left out for a method that does not need it.
    """
    run, others = measured.run, {*PASSES} - {*PASSES_OF_METHODS.get(method, ())}
    marks = tuple(mark for mark in run.warnings if mark.removeprefix("profile: ").partition(":")[0] not in others)
    if run.quick and not any(mark.startswith("quick") for mark in marks):
        marks += ("quick: measured for a fifth of the usual time",)
    if method == "one":
        return marks
    drift = (measured.time.drift,) if measured.time is not None and measured.time.drift else ()
    return (*marks, *drift, *measured.notes)


def _rates(measured: Measurement, method: str, time: MeanStepTime) -> dict[str, float | None]:
    """Return time, items and energy, which depend on no count. Energy was taken over the cell's own steps only.

    The items of a pass are its samples × the items per sample of the cell's step.
    """
    run, pass_time = measured.run, measured.passes.get(method)
    items: float | None = run.items_per_step
    if method in PROFILED_METHODS and items is not None:
        items = None if pass_time is None or pass_time.items is None else pass_time.items * items / run.batch_size
    power_w = measured.power_w if method not in ("one", "epoch") else None
    return {
        "time_s": time.mean_s,
        "time_low_s": time.low_s,
        "time_high_s": time.high_s,
        "items_per_s": items / time.mean_s if items else None,
        "energy_per_item_j": power_w * time.mean_s / items if power_w is not None and items else None,
    }


def _fraction(
    measured: Measurement, numerator: Numerator, denominator: Denominator, standing: Standing
) -> tuple[str, str, dict[str, Any]]:
    """Return status, reason and the ratio's columns, as far as numerator and denominator are known. standing: of the
    method.

    Over a paired ceiling, the interval is that of the ratio, and the peak is computed from the ratio and the cell's
    step time.
    """
    (time, status, reason), flop, by_unit = standing, numerator.model_flop, numerator.flop_by_unit
    if denominator.name == PAIRED and numerator.method in PROFILED_METHODS and measured.run.status in MEASURED:
        return "unavailable", "a ceiling was timed beside the cell's own steps alone", {}
    paired, absent = measured.paired if denominator.name == PAIRED else None, ""
    known: dict[str, Any] = {}
    if paired is None:
        try:
            known = {"peak_flop_per_s": denominator.peak(by_unit), "peak_source": denominator.source(by_unit)}
        except Unavailable as fault:
            absent = str(fault)
    if time is None:
        return status, reason, known
    if flop is None:
        return "unavailable", numerator.reason, known
    known["achieved_flop_per_s"] = flop / time.mean_s
    if paired is not None:
        try:
            ratio = paired.utilization(by_unit)
        except Unavailable as fault:
            return "unavailable", str(fault), known
        known |= {"peak_flop_per_s": flop / (time.mean_s * ratio.ratio), "utilization_ratio": ratio.ratio}
        known |= {"peak_source": paired.source(by_unit)}
        known |= {"utilization_low_ratio": ratio.low, "utilization_high_ratio": ratio.high}
    elif absent:
        return "unavailable", absent, known
    else:
        peak = known["peak_flop_per_s"]
        known["utilization_ratio"] = flop / (time.mean_s * peak)
        known["utilization_low_ratio"] = flop / (time.high_s * peak) if time.high_s else None
        known["utilization_high_ratio"] = flop / (time.low_s * peak) if time.low_s else None
    return status, reason, known


def _surprises(
    measured: Measurement,
    fraction: Mapping[str, Any],
    numerator: Numerator,
    denominator: Denominator,
    exact: Numerator | None,
) -> tuple[str, ...]:
    """Explain a ratio above 1: the counter is wrong where the exact count of the same steps stays at or below 1."""
    ratio = fraction.get("utilization_ratio")
    if ratio is None or ratio <= 1:
        return ()
    by_exact = None  # none for one sample and an epoch: their steps and times are not the cell's
    if exact is not None and numerator.method not in ("one", "epoch"):
        _, _, of_exact = _fraction(measured, exact, denominator, _standing(measured, exact.method))
        by_exact = of_exact.get("utilization_ratio")
    if numerator is not exact and by_exact is not None and by_exact <= 1:
        counts = f"by its count the cell reaches {ratio:.4g} × this peak, by the exact count {by_exact:.4g} ×"
        return (f"counter_too_high: {numerator.source}: {counts}",)
    if denominator.name in ("ceiling", PAIRED):
        return (f"ceiling_too_low: the cell reaches {ratio:.3g} × the measured ceiling",)
    tensor = [unit for unit in TENSOR_UNITS if numerator.flop_by_unit.get(unit)]
    if tensor:
        return (f"above_one: {ratio:.3g} on {', '.join(tensor)} is an error in numerator or denominator",)
    return (f"above_one: {ratio:.3g} without tensor units: a fast algorithm such as Winograd, or an error",)


# --- the 2021 post ----------------------------------------------------------------------------------------------------

FLOP_PER_MULTIPLY_ADD = 2

UNIT = "fp32"
"""The unit whose peak the 2021 post divides by."""

POST2021_PEAKS = ("datasheet", "user", "ceiling")
"""Denominators in order of preference; the first with a peak for UNIT is used."""

POST2021_METHODS = ("theory", "one", "batch", "epoch", "exact")

CONVENTION = "convention: post2021: a multiply-add is 1, over the fp32 peak whatever the precision"


def post2021_rows(measured: Measurement, numerators: Iterable[Numerator], peak: Denominator) -> list[Utilization]:
    """Return one cell's rows of utilization_post2021.csv: each method over one peak, `fp32_peak` of its denominators.

    This is the 2021 post's arithmetic, for comparison with its 0.3 to 0.75: a multiply-add counts as 1 and the peak is
    the fp32 one of the CUDA cores, whatever unit the precision policy uses. The method `theory` is three times fvcore's
    native total, unconverted, normalisation included. Not claimed: that these fractions are utilizations
    (`docs/results.md` explains). Times are those of `utilization.csv`.
    """
    return [
        _with_warning(measured.run, row)
        for row in rows(measured, post2021_numerators(numerators, measured.run), [peak])
    ]


def post2021_numerators(numerators: Iterable[Numerator], run: Run) -> list[Numerator]:
    """Return the post's numerator of each of the run's methods, in the order of POST2021_METHODS."""
    by_method: dict[str, list[Numerator]] = {method: [] for method in POST2021_METHODS}
    native = Numerator("theory", "fvcore", reason="fvcore was not among the counters")
    for numerator in numerators:
        if numerator.method == "theory_as_published":
            native = _on_fp32(numerator, 1, "theory")
        elif numerator.method in by_method and numerator.method != "theory":
            by_method[numerator.method].append(_on_fp32(numerator, FLOP_PER_MULTIPLY_ADD, numerator.method))
    by_method["theory"] = [native] if "theory" in run.methods else []
    return [numerator for same in by_method.values() for numerator in same]


def fp32_peak(denominators: Sequence[Denominator]) -> Denominator:
    """Return the fp32 peak by the first of POST2021_PEAKS; where it is not the datasheet's, its source says why."""
    by_name = {denominator.name: denominator for denominator in denominators}
    missing: list[str] = []
    for name in (name for name in POST2021_PEAKS if name in by_name):
        try:
            known = by_name[name]
            flop = {UNIT: 1}
            because = f" (not the datasheet's: {missing[0]})" if missing else ""
            return Denominator(known.name, {UNIT: known.peak(flop)}, {UNIT: known.source(flop) + because})
        except Unavailable as fault:
            missing.append(str(fault))
    return Denominator(POST2021_PEAKS[0], reason=f"no {UNIT} peak: {'; '.join(missing)}")


def _on_fp32(numerator: Numerator, divisor: int, method: str) -> Numerator:
    """Move all FLOP to UNIT and divide them. Model FLOP are pairs of a multiplication and an addition, so nothing is
    lost."""
    flop = numerator.model_flop
    units = {} if flop is None else {UNIT: flop // divisor}
    least = numerator.at_least_flop
    marks = tuple(mark for mark in numerator.warnings if not mark.startswith("convention"))
    return replace(
        numerator,
        method=method,
        flop_by_unit=units,
        all_flop=None,
        at_least_flop=None if least is None else least // divisor,
        warnings=(CONVENTION, *marks),
    )


def _with_warning(run: Run, row: Utilization) -> Utilization:
    """Add a warning to a ratio above 1 on tensor units, which are faster than the peak divided by."""
    policy = PRECISIONS[run.precision]
    ran = {run.convolution_unit or policy.convolution_unit, run.matmul_unit or policy.matmul_unit}
    if row.utilization_ratio is None or row.utilization_ratio <= 1 or not ran & set(TENSOR_UNITS):
        return row
    marks = tuple(mark for mark in row.warnings if not mark.startswith(("above_one", "ceiling_too_low")))
    why = f"above_one: {', '.join(sorted(ran))} is faster than the fp32 peak, over which this is"
    return replace(row, warnings=(*marks, why))
