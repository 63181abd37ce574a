"""What a meter says of a stretch of a loop: sums and block means → rates, utilization and their intervals.

The interval is that of the mean over blocks of steps of this one process (`analysis.stats.summary`). It does not hold
what differs between processes, machines or ceilings. Counts are exact, and peaks are as published, given or measured,
without an interval of their own.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from analysis.operators.attention_conventions import BY_RULE
from analysis.stats.summary import summarise
from analysis.utilization.denominators import Denominator
from measure.meter.call_costs import DENSE, CallCosts, StepFlop
from measure.meter.calls import add_passes
from measure.meter.step_times import StepBlock, Stretch, all_of
from results.errors import Unavailable

CONVENTION: Mapping[str, str] = {
    "flop": "convolutions and matrix products of forward and backward passes; a multiply-add is 2",
    "attention": "dense",
    "utilization_ratio": "model FLOP / s / peak, without recomputation (MFU)",
    "hfu_ratio": "model and recomputed FLOP / s / peak (HFU)",
    "interval": "95 % of the mean over blocks of steps of one process",
}

UNBOUNDED = 100.0
"""An upper end that is so many times the lower one bounds nothing; a few steps beside a busy neighbour have such."""


@dataclass(frozen=True, kw_only=True)
class MeterSummary:
    """What was measured of a stretch of a loop. None: not known, with the reason in `warnings`.

    model_flop_per_step, recompute_flop_per_step: means over steps, FLOP; None where a call has no count: then
    at_least_flop_per_step has what the others add up to, and unknown_calls how many there are.
    step_time_s: mean time of one step, s. model_flop_per_s: FLOP ÷ time inside of steps.
    utilization_ratio, hfu_ratio: of peak_flop_per_s, 0 to 1. ceiling_utilization_ratio: of the measured peak.
    single_peak_flop_per_s, single_peak_unit, single_peak_utilization_ratio: of a loop on several units, whose
    peak_flop_per_s is that of all together: the peak of the unit with most FLOP, and what a table of one would say.
    items_per_s: inside of steps; None where a step's items are not known. energy_per_item_j: mean power × time from the
    first begin of a step to the last end.
    goodput_ratio: time inside of steps ÷ time from the first step's begin to the last one's end.
    causal_flop_per_step, mask_exact_flop_per_step, and the utilizations of these names: with attention counted up to
    the diagonal where it is causal, or by the pairs that its masks keep; all others count it dense. None: not known,
    and attention_reasons says why.
    unverified_steps: those after the last step that was observed, that of number unverified_since_step (0: none was).
    unverified_reason: why they cannot be observed, "" if they can. lost_steps: those without FLOP, because an observed
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
        """What a person reads: utilization first, then what it is made of; a line for each number that is known."""
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
                since = f"since step {self.unverified_since_step} ({self.unverified_steps} steps){why}"
                lines.append(f"unverified  {since}")
        if self.items_per_s is not None:
            lines.append(f"items       {_short(self.items_per_s)} a second")
        if self.energy_per_item_j is not None:
            lines.append(f"energy      {_short(self.energy_per_item_j)} J an item")
        if self.goodput_ratio is not None:
            lines.append(f"goodput     {_short(100 * self.goodput_ratio)} % of the time is in steps")
        return "\n".join([*lines, *(f"note: {warning}" for warning in self.warnings)])

    def _attention(self) -> list[str]:
        """The line of the other conventions of attention, where there is any."""
        if not self.has_attention or not self.model_flop_per_step:
            return []
        parts = []
        for name in BY_RULE:
            flop, ratio = getattr(self, f"{name}_flop_per_step"), getattr(self, f"{name}_utilization_ratio")
            words = name.replace("_", "-")
            if flop is None:
                parts.append(f"{words} not known ({self.attention_reasons.get(name, 'a call has no count')})")
            else:
                mfu = "" if ratio is None else f", MFU {_short(100 * ratio)} %"
                parts.append(f"{words} {_short(100 * flop / self.model_flop_per_step)} % of it{mfu}")
        return [f"attention   counted dense; {'; '.join(parts)}"]

    def scalars(self, prefix: str = "") -> dict[str, float]:
        """The numbers that are known, by name, for a logger. prefix: put before each name, such as "flopledger/"."""
        values = asdict(self) | {"has_attention": None}
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        return {f"{prefix}{name}": float(value) for name, value in numbers.items()}


def _of_peak(name: str, ratio: float | None, peak: float | None, source: str, ends: str = "") -> list[str]:
    """The line of a ratio, if it is known. ends: of its interval, with the blank before them."""
    if ratio is None or peak is None:
        return []
    return [f"{name:11} {_short(100 * ratio)} %{ends} of {_short(peak / 1e9)} GFLOP/s{f', {source}' if source else ''}"]


def _ends(low: float | None, high: float | None, scale: float, unit: str) -> str:
    """An interval in words, with a blank before it; without an upper end that is UNBOUNDED."""
    if low is None or high is None:
        return ""
    if high > UNBOUNDED * low:
        return f" ({_short(scale * low)} {unit} or more)"
    return f" ({_short(scale * low)} to {_short(scale * high)} {unit})"


def _short(value: float) -> str:
    """Three digits, and all of those before the point: 0.0178, 10.4, 312,000."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class LoopDevice:
    """Where a loop runs, and what to divide by there. peak: datasheet or given; ceiling: measured."""

    device: str
    device_name: str
    peak: Denominator
    ceiling: Denominator


def summary(
    stretch: Stretch,
    costs: CallCosts,
    place: LoopDevice,
    power_w: float | None = None,
    warnings: Sequence[str] = (),
) -> MeterSummary:
    """Sums up steps. power_w: mean power of the device over them."""
    whole, blocks = all_of(stretch.blocks), [block for block in stretch.blocks if block.steps and block.time_s > 0]
    if not blocks and not whole.observed:
        reason = "no step was completed after the warm-up"
        return MeterSummary(steps=0, device=place.device, device_name=place.device_name, warnings=(*warnings, reason))
    row: dict[str, Any] = {"steps": whole.steps + whole.observed, "lost_steps": stretch.lost_steps}
    row["counting_s"] = costs.counting_s
    passes = dict(whole.passes)
    add_passes(passes, whole.observed_passes)
    counts, reasons = _counts(stretch, whole, costs.flop(passes), costs)
    if blocks:
        time_s, outside_s, items = whole.time_s, whole.outside_s, whole.known_items
        times = summarise([block.time_s / block.steps for block in blocks], [block.steps for block in blocks])
        row |= {
            "step_time_s": time_s / whole.steps,
            "step_time_low_s": times.low,
            "step_time_high_s": times.high,
            "goodput_ratio": time_s / (time_s + outside_s),
            "items_per_s": items / time_s if items else None,
            "energy_per_item_j": power_w * (time_s + outside_s) / items if power_w is not None and items else None,
        }
        reasons += _items_reasons(whole)
    else:
        reasons.append("each step was observed, which takes longer: there is no time of a step")
    if blocks and "model_flop_per_step" in counts:
        rates, no_rates = _rates(blocks, costs, costs.flop(whole.passes), place, whole.time_s)
        counts |= rates
        reasons += no_rates
    notes = tuple(dict.fromkeys((*warnings, *reasons)))
    return MeterSummary(device=place.device, device_name=place.device_name, warnings=notes, **(row | counts))


def _items_reasons(whole: StepBlock) -> list[str]:
    """Why there are no items a second."""
    if whole.known_items is not None:
        return []
    if whole.without_items:
        lacking = f"those of {whole.without_items} of {whole.steps} steps are not known"
    else:
        lacking = f"they were given for {whole.given} of {whole.steps} steps, and others count samples"
    return [f"no items/s and J/item: {lacking}: give step() a finite number from 0 as items in each step"]


def _counts(stretch: Stretch, whole: StepBlock, flop: StepFlop, costs: CallCosts) -> tuple[dict[str, Any], list[str]]:
    """FLOP of the mean step, and why something of it is absent. flop: of all steps."""
    steps, total = whole.steps + whole.observed, sum(flop.by_unit[DENSE].values())
    unseen = whole.unseen if total else 0  # a graph that is replayed without its inputs
    unknown = flop.unknown_calls + unseen + stretch.lost_steps
    reasons = list(flop.reasons)
    if unseen:
        reasons.append(f"no forward pass of the model was seen in {unseen} of {steps} steps: give step() their inputs")
    if stretch.lost_steps:
        total -= sum(costs.flop(stretch.lost).by_unit[DENSE].values())
        reasons.append(f"{stretch.lost_steps} steps have no FLOP: {stretch.why_lost}")
    row: dict[str, Any] = {"unknown_calls": unknown, "units": tuple(sorted(flop.by_unit[DENSE]))}
    row["at_least_flop_per_step"] = total / steps if total else None
    if not total and not unknown:
        reasons.append("no forward pass of the model was seen inside of a step: is it the model that is called?")
    if unknown or not total:
        return row, reasons
    row["model_flop_per_step"] = total / steps
    row["recompute_flop_per_step"] = flop.recompute_flop / steps
    row |= {"attention_reasons": flop.attention_reasons, "has_attention": flop.has_attention}
    for name in BY_RULE:
        if (units := flop.by_unit.get(name)) is not None:
            row[f"{name}_flop_per_step"] = sum(units.values()) / steps
    return row, reasons


def _rates(
    blocks: Sequence[StepBlock], costs: CallCosts, flop: StepFlop, place: LoopDevice, time_s: float
) -> tuple[dict[str, Any], list[str]]:
    """FLOP over time and over peaks, and why something of it is absent. flop: of all blocks."""
    by_unit = flop.by_unit[DENSE]
    total = sum(by_unit.values())
    row: dict[str, Any] = {"model_flop_per_s": total / time_s}
    with contextlib.suppress(Unavailable):  # a ceiling is an extra: most loops have none
        ceiling = place.ceiling.peak(by_unit)
        row |= {"ceiling_flop_per_s": ceiling, "ceiling_source": place.ceiling.source(by_unit)}
        row["ceiling_utilization_ratio"] = total / time_s / ceiling
    try:
        peak = place.peak.peak(by_unit)
        row |= {"peak_flop_per_s": peak, "peak_source": place.peak.source(by_unit)}
        row["utilization_ratio"] = total / time_s / peak
        row["hfu_ratio"] = (total + flop.recompute_flop) / time_s / peak
        ratios = [
            sum(flop / place.peak.peak_by_unit[unit] for unit, flop in units.items() if flop) / block.time_s
            for block in blocks
            for units in [costs.flop(block.passes).by_unit[DENSE]]
        ]
        interval = summarise(ratios, [block.time_s for block in blocks])
        row |= {"utilization_low_ratio": interval.low, "utilization_high_ratio": interval.high}
        for name in BY_RULE:
            if (units := flop.by_unit.get(name)) is not None:
                row[f"{name}_utilization_ratio"] = sum(units.values()) / time_s / place.peak.peak(units)
        row |= _of_one_unit(by_unit, time_s, place.peak)
    except Unavailable as reason:
        return row, [] if "ceiling_flop_per_s" in row else [f"no utilization: {reason}"]
    return row, []


def _of_one_unit(by_unit: Mapping[str, int], time_s: float, peak: Denominator) -> dict[str, Any]:
    """What a table of one unit would say of work on several: all of it over the peak of the unit with most FLOP."""
    work = {unit: flop for unit, flop in by_unit.items() if flop}
    if len({peak.peak_by_unit[unit] for unit in work}) < 2:
        return {}
    most = max(work, key=lambda unit: work[unit])
    single = peak.peak_by_unit[most]
    ratio = sum(work.values()) / time_s / single
    return {"single_peak_flop_per_s": single, "single_peak_unit": most, "single_peak_utilization_ratio": ratio}
