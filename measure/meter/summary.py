"""Computes rates, utilizations and intervals of consecutive steps of a loop: `summary` returns a `MeterSummary`.

`summary` takes a `Stretch` (sums and block means of consecutive steps) and the counts of its calls. It also takes the
loop's device with its peaks, and the mean power. An interval covers the mean over blocks of steps of this one process
(`analysis.stats.summary`). It does not cover differences between processes, machines or ceilings (measured peaks).
Counts are exact. Peaks are as published, given or measured, and have no interval.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from analysis.operators.attention_conventions import BY_RULE
from analysis.stats.summary import summarise
from analysis.utilization.denominators import Denominator
from measure.meter.call_costs import DENSE, CallCosts, PassFlop
from measure.meter.calls import add_passes
from measure.meter.step_times import StepBlock, Stretch, merged_block
from results.errors import Unavailable
from results.text_files import counted

CONVENTION: Mapping[str, str] = {
    "flop": "convolutions and matrix products of forward and backward passes; a multiply-add is 2",
    "attention": "dense",
    "utilization_ratio": "model FLOP / s / peak, without recomputation (MFU)",
    "hfu_ratio": "model and recomputed FLOP / s / peak (HFU)",
    "interval": "95 % of the mean over blocks of steps of one process",
}

UNBOUNDED = 100.0
"""The upper end of an interval is not shown if it is more than this many times the lower end, since it bounds nothing;
a few steps next to a busy process have such an interval."""


@dataclass(frozen=True, kw_only=True)
class MeterSummary:
    """The measured values of consecutive steps of a loop; None where not known, with the reason in `warnings`.

    model_flop_per_step, recompute_flop_per_step: means over steps, FLOP; None where a call has no count. Then
    at_least_flop_per_step is the sum of the others, and unknown_calls the number of calls without a count.
    step_time_s: mean time of one step, s. model_flop_per_s: FLOP ÷ time inside of steps.
    utilization_ratio, hfu_ratio: rate ÷ peak_flop_per_s, 0 to 1. ceiling_utilization_ratio: rate ÷ the measured peak.
    single_peak_flop_per_s, single_peak_unit, single_peak_utilization_ratio: the peak of the unit with most FLOP, that
    unit, and the utilization by that peak only. They are given in a loop on several units, whose peak_flop_per_s
    combines their peaks.
    items_per_s: items ÷ time inside of steps; None where a step's items are not known.
    energy_per_item_j: mean power × time in and between steps ÷ items.
    goodput_ratio: time inside of steps ÷ time in and between steps. Times leave out observed steps and counting.
    causal_flop_per_step, mask_exact_flop_per_step, and the utilizations of these names: attention is counted up to the
    diagonal where it is causal, or by the pairs that its masks keep. All other fields count attention dense. None: not
    known, and attention_reasons says why.
    unverified_steps: steps after the last observed step, whose number is unverified_since_step (0: none was observed).
    unverified_reason: why they cannot be observed, "" if they can. lost_steps: steps without FLOP, because an observed
    step ran something else.
    low, high: ends of the 95 % interval; None below two blocks.
    """

    steps: int
    device: str
    device_name: str
    step_time_s: float | None = None
    step_time_low_s: float | None = None
    step_time_high_s: float | None = None
    model_flop_per_step: float | None = None
    recompute_flop_per_step: float | None = None
    at_least_flop_per_step: float | None = None
    unknown_calls: int = 0
    unverified_steps: int = 0
    unverified_since_step: int | None = None
    unverified_reason: str = ""
    lost_steps: int = 0
    model_flop_per_s: float | None = None
    peak_flop_per_s: float | None = None
    peak_source: str = ""
    utilization_ratio: float | None = None
    utilization_low_ratio: float | None = None
    utilization_high_ratio: float | None = None
    hfu_ratio: float | None = None
    ceiling_flop_per_s: float | None = None
    ceiling_source: str = ""
    ceiling_utilization_ratio: float | None = None
    items_per_s: float | None = None
    energy_per_item_j: float | None = None
    goodput_ratio: float | None = None
    counting_s: float = 0.0
    units: tuple[str, ...] = ()
    convention: Mapping[str, str] = field(default_factory=lambda: dict(CONVENTION))
    warnings: tuple[str, ...] = ()
    causal_flop_per_step: float | None = None
    mask_exact_flop_per_step: float | None = None
    causal_utilization_ratio: float | None = None
    mask_exact_utilization_ratio: float | None = None
    has_attention: bool = False
    attention_reasons: Mapping[str, str] = field(default_factory=dict)
    single_peak_flop_per_s: float | None = None
    single_peak_unit: str = ""
    single_peak_utilization_ratio: float | None = None

    def __str__(self) -> str:
        """Format for a person: utilization first, then the numbers behind it; a line for each number that is known."""
        interval, time = _ends(self.utilization_low_ratio, self.utilization_high_ratio, 100.0, "%"), ""
        if self.step_time_s is not None:
            ends = _ends(self.step_time_low_s, self.step_time_high_s, 1e3, "ms")
            time = f", each {_short(1e3 * self.step_time_s)} ms{ends},"
        lines = [
            *_of_peak("MFU", self.utilization_ratio, self.peak_flop_per_s, self.peak_source, interval),
            *_of_peak("HFU", self.hfu_ratio if self.recompute_flop_per_step else None, self.peak_flop_per_s, ""),
            *_of_peak(
                "of one unit", self.single_peak_utilization_ratio, self.single_peak_flop_per_s, self.single_peak_unit
            ),
            *_of_peak("utilization", self.ceiling_utilization_ratio, self.ceiling_flop_per_s, self.ceiling_source),
            f"steps       {self.steps}{time} on {self.device_name or self.device}",
        ]
        if self.model_flop_per_step is not None and self.model_flop_per_s is not None:
            rate = (
                f"{_short(self.model_flop_per_step / 1e9)} GFLOP a step, {_short(self.model_flop_per_s / 1e9)} GFLOP/s"
            )
            lines += [f"model FLOP  {rate}", *self._attention()]
            if self.unverified_steps:
                why = f": {self.unverified_reason}" if self.unverified_reason else ""
                since = f"since step {self.unverified_since_step} ({counted(self.unverified_steps, 'step')}){why}"
                lines.append(f"unverified  {since}")
        if self.items_per_s is not None:
            lines.append(f"items       {_short(self.items_per_s)} a second")
        if self.energy_per_item_j is not None:
            lines.append(f"energy      {_short(self.energy_per_item_j)} J an item")
        if self.goodput_ratio is not None:
            lines.append(f"goodput     {_short(100 * self.goodput_ratio)} % of the time is in steps")
        return "\n".join([*lines, *(f"note: {warning}" for warning in self.warnings)])

    def _attention(self) -> list[str]:
        """Return the line of the other conventions of attention, if there are any."""
        if not self.has_attention or not self.model_flop_per_step:
            return []
        parts = []
        for name in BY_RULE:
            flop, ratio = getattr(self, f"{name}_flop_per_step"), getattr(self, f"{name}_utilization_ratio")
            label = name.replace("_", "-")
            if flop is None:
                parts.append(f"{label} not known ({self.attention_reasons.get(name, 'a call has no count')})")
            else:
                mfu = "" if ratio is None else f", MFU {_short(100 * ratio)} %"
                parts.append(f"{label} {_short(100 * flop / self.model_flop_per_step)} % of it{mfu}")
        return [f"attention   counted dense; {'; '.join(parts)}"]

    def scalars(self, prefix: str = "") -> dict[str, float]:
        """Return the numbers that are known, by name, for a logger. prefix: put before each name, such as
        "flopledger/"."""
        values = asdict(self) | {"has_attention": None}
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        return {f"{prefix}{name}": float(value) for name, value in numbers.items()}


def _of_peak(name: str, ratio: float | None, peak: float | None, source: str, ends: str = "") -> list[str]:
    """Return the line of a ratio, if it is known. ends: its interval in words (`_ends`)."""
    if ratio is None or peak is None:
        return []
    return [f"{name:11} {_short(100 * ratio)} %{ends} of {_short(peak / 1e9)} GFLOP/s{f', {source}' if source else ''}"]


def _ends(low: float | None, high: float | None, scale: float, unit: str) -> str:
    """Return an interval in words, with a blank before it; without its upper end if that bounds nothing."""
    if low is None or high is None:
        return ""
    if high > UNBOUNDED * low:
        return f" ({_short(scale * low)} {unit} or more)"
    return f" ({_short(scale * low)} to {_short(scale * high)} {unit})"


def _short(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the point: 0.0178, 10.4, 312,000."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class LoopDevice:
    """The device of a loop, and the peaks to divide by. peak: of the datasheet, or given; ceiling: measured."""

    device: str
    device_name: str
    peak: Denominator
    ceiling: Denominator


def summary(
    stretch: Stretch,
    costs: CallCosts,
    loop_device: LoopDevice,
    power_w: float | None = None,
    warnings: Sequence[str] = (),
) -> MeterSummary:
    """Sum up the steps of a stretch. power_w: mean power of the device over them. warnings: further ones to report."""
    whole, blocks = (
        merged_block(stretch.blocks),
        [block for block in stretch.blocks if block.steps and block.time_s > 0],
    )
    row: dict[str, Any] = {"steps": whole.steps + whole.observed, "lost_steps": stretch.lost_steps}
    row |= {"device": loop_device.device, "device_name": loop_device.device_name, "counting_s": costs.counting_s}
    reasons = list(warnings)
    if not row["steps"]:
        return MeterSummary(**row, warnings=(*reasons, "no step was completed after the warm-up"))
    passes = dict(whole.passes)
    add_passes(passes, whole.observed_passes)
    _add_counts(row, reasons, stretch, whole, costs.flop(passes), costs)
    if blocks:
        time_s, outside_s = whole.time_s, whole.outside_s
        times = summarise([block.time_s / block.steps for block in blocks], [block.steps for block in blocks])
        row |= {"step_time_s": time_s / whole.steps, "step_time_low_s": times.low, "step_time_high_s": times.high}
        row["goodput_ratio"] = time_s / (time_s + outside_s)
        lacking = ""
        if whole.without_items:
            lacking = f"the items of {whole.without_items} of {whole.steps} steps are not known"
        elif whole.given not in (0, whole.steps):
            lacking = f"items were given for {whole.given} of {whole.steps} steps, and others count samples"
        elif whole.items:
            row["items_per_s"] = whole.items / time_s
            row["energy_per_item_j"] = None if power_w is None else power_w * (time_s + outside_s) / whole.items
        if lacking:
            reasons.append(
                f"no items/s and J/item: {lacking}: give step() a finite number from 0 as items in each step"
            )
        if "model_flop_per_step" in row:
            _add_rates(row, reasons, blocks, costs, costs.flop(whole.passes), loop_device, time_s)
    else:
        reasons.append("each step was observed, which takes longer: there is no time of a step")
    return MeterSummary(**row, warnings=tuple(dict.fromkeys(reasons)))


def _add_counts(
    row: dict[str, Any], reasons: list[str], stretch: Stretch, whole: StepBlock, flop: PassFlop, costs: CallCosts
) -> None:
    """Add the FLOP of the mean step, and the reasons for missing ones. flop: of all steps."""
    steps, total = row["steps"], flop.dense
    unseen = whole.unseen if total else 0  # a graph that is replayed without its inputs
    unknown = flop.unknown_calls + unseen + stretch.lost_steps
    reasons += flop.reasons
    if unseen:
        reasons.append(f"no forward pass of the model was seen in {unseen} of {steps} steps: give step() their inputs")
    if stretch.lost_steps:
        total -= costs.flop(stretch.lost).dense
        reasons.append(f"{stretch.lost_steps} steps have no FLOP: {stretch.why_lost}")
    row |= {"unknown_calls": unknown, "units": tuple(sorted(flop.by_unit[DENSE]))}
    row["at_least_flop_per_step"] = total / steps if total else None
    if not total and not unknown:
        reasons.append("no forward pass of the model was seen inside of a step: does the loop call this model?")
    if total and not unknown:
        row |= {"model_flop_per_step": total / steps, "recompute_flop_per_step": flop.recompute_flop / steps}
        row |= {"attention_reasons": flop.attention_reasons, "has_attention": flop.has_attention}
        known = [name for name in BY_RULE if name in flop.by_unit]
        row |= {f"{name}_flop_per_step": sum(flop.by_unit[name].values()) / steps for name in known}


def _add_rates(
    row: dict[str, Any],
    reasons: list[str],
    blocks: Sequence[StepBlock],
    costs: CallCosts,
    flop: PassFlop,
    loop_device: LoopDevice,
    time_s: float,
) -> None:
    """Add FLOP ÷ time and ÷ peaks, and the reasons for missing ones. flop: of all blocks."""
    by_unit, rate = flop.by_unit[DENSE], flop.dense / time_s
    row["model_flop_per_s"] = rate
    with contextlib.suppress(Unavailable):  # a ceiling is an extra: most loops have none
        ceiling = loop_device.ceiling.peak(by_unit)
        row |= {"ceiling_flop_per_s": ceiling, "ceiling_source": loop_device.ceiling.source(by_unit)}
        row["ceiling_utilization_ratio"] = rate / ceiling
    try:
        peak = loop_device.peak.peak(by_unit)
        row |= {
            "peak_flop_per_s": peak,
            "peak_source": loop_device.peak.source(by_unit),
            "utilization_ratio": rate / peak,
        }
        row["hfu_ratio"] = (rate + flop.recompute_flop / time_s) / peak
        units = [costs.flop(block.passes).by_unit[DENSE] for block in blocks]
        ratios = [
            sum(flop / loop_device.peak.peak_by_unit[unit] for unit, flop in by_unit.items() if flop) / block.time_s
            for block, by_unit in zip(blocks, units, strict=True)
        ]
        interval = summarise(ratios, [block.time_s for block in blocks])
        row |= {"utilization_low_ratio": interval.low, "utilization_high_ratio": interval.high}
        for name in BY_RULE:
            if name in flop.by_unit:
                units_flop = flop.by_unit[name]
                row[f"{name}_utilization_ratio"] = sum(units_flop.values()) / time_s / loop_device.peak.peak(units_flop)
        row |= _of_one_unit(by_unit, time_s, loop_device.peak)
    except Unavailable as reason:
        if "ceiling_flop_per_s" not in row:
            reasons.append(f"no utilization: {reason}")


def _of_one_unit(by_unit: Mapping[str, int], time_s: float, peak: Denominator) -> dict[str, Any]:
    """Return the fields of all FLOP over the peak of the unit with most FLOP; {} if all units have the same peak."""
    used = {unit: flop for unit, flop in by_unit.items() if flop}
    if len({peak.peak_by_unit[unit] for unit in used}) < 2:
        return {}
    most = max(used, key=lambda unit: used[unit])
    single = peak.peak_by_unit[most]
    ratio = sum(used.values()) / time_s / single
    return {"single_peak_flop_per_s": single, "single_peak_unit": most, "single_peak_utilization_ratio": ratio}
