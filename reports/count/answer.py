"""Holds the answer of `runners.count` for one model at one batch: a step's exact count, and what explains each counter.

`counter_counts` takes a recording of the model's calls and the counters' rows, and returns a `ModelCounts`.
`exact_counts` needs only the exact count's rows. `document` takes a `ModelCounts` and returns the command's JSON. The
peak of a step is Σ FLOP ÷ Σ (FLOP ÷ peak of the number format). It is the rate if each product runs at its own peak.
The answer also has the peak of the format with most FLOP, for tables with one format per device. A product of float32
counts as float32, not as TF32, whichever unit runs it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from analysis.devices.format_peaks import MixedPeak, mixed_peak, peak_refusal
from analysis.operators.attention_conventions import CONVENTIONS, AttentionFlop, attention_flop
from analysis.operators.cost import input_dtype
from analysis.operators.registry import cost, model_flop, unsupported
from cleaning.accounts.explain import PHASES, at_least, reconcile, unknown_calls
from results.records.answers import Attribution, AttributionCause
from results.records.calls import CallRecording
from results.records.counts import FlopCount

NOT_LISTED = "no count of this model says it"
"""Why conventions of attention are missing, where no count has them."""


@dataclass(frozen=True)
class StepPeak:
    """The peak of a step's products on one device.

    device: the requested name. flop_by_dtype: FLOP of the products of forward and backward pass. peak: None if a format
    has none on the device, or there is no product; reason says which.
    """

    device: str
    flop_by_dtype: Mapping[str, int]
    peak: MixedPeak | None = None
    reason: str = ""


@dataclass(frozen=True)
class ModelCounts:
    """One model at one batch size: exact FLOP of a training step by pass, and what explains every counter.

    exact: by pass; None where a call of the pass has no rule. at_least_flop, unknown_calls: by pass, the sum of the
    calls that have a rule, and the number of those without. other_flop: by pass, arithmetic outside convolutions and
    matrix products. not_understood: operator → calls for which the exact count has no rule. notes: remarks on the
    count. peak: None if no device was requested. recording: None if only the exact count was requested.
    """

    model: str
    batch_size: int
    parameters: int | None
    exact: Mapping[str, int | None]
    other_flop: Mapping[str, int | None] = field(default_factory=dict)
    not_understood: Mapping[str, int] = field(default_factory=dict)
    attributions: Sequence[Attribution] = ()
    causes: Sequence[AttributionCause] = ()
    notes: tuple[str, ...] = ()
    at_least_flop: Mapping[str, int | None] = field(default_factory=dict)
    unknown_calls: Mapping[str, int] = field(default_factory=dict)
    attention: AttentionFlop | None = None
    peak: StepPeak | None = None
    recording: CallRecording | None = None

    @property
    def counters(self) -> list[str]:
        """The counters' names in order."""
        return list(dict.fromkeys(attribution.counter for attribution in self.attributions))

    def attribution(self, counter: str, phase: str) -> Attribution | None:
        """Return the attribution of one counter's number of one pass; None without one."""
        return next((a for a in self.attributions if (a.counter, a.phase) == (counter, phase)), None)

    def attention_pass(self, convention: str, phase: str) -> int | None:
        """Return FLOP of a pass by a convention of attention; None where it is not known."""
        dense = self.exact.get(phase)
        return None if self.attention is None else self.attention.flop(convention, phase, dense)


def exact_counts(model: str, batch_size: int, rows: Sequence[FlopCount]) -> ModelCounts:
    """Return the answer if only the exact count was requested. rows: its own at this batch, by phase."""
    exact = {row.phase: row.flop for row in rows} | {"optimizer": 0}
    return ModelCounts(
        model=model,
        batch_size=batch_size,
        parameters=rows[0].parameters,
        exact=exact,
        notes=(f"note: {rows[0].reason}",) if rows[0].reason else (),
        at_least_flop=exact,
        attention=AttentionFlop.from_rows((row.phase, row.flop, row.attention) for row in rows),
    )


def counter_counts(
    model: str, batch_size: int, recording: CallRecording, rows: Iterable[FlopCount], device: str | None = None
) -> ModelCounts:
    """Return the answer with counters. rows: theirs; device: whose peak is requested."""
    table = recording.training or recording.operations
    attributions, causes = reconcile(model, batch_size, recording, rows)
    phases = {**PHASES, "optimizer": ("optimizer",), "recompute": ("recompute",)}
    unknown = {name: unknown_calls(recording, members) for name, members in phases.items()}
    least: dict[str, int | None] = {name: at_least(recording, members) for name, members in phases.items()}
    other: dict[str, int | None] = {
        name: sum(int(cost(operation).other_flop) for operation in table if operation.phase in members)
        for name, members in phases.items()
    }
    notes = [f"note: {recording.note}"] if recording.note else []
    if not recording.training:  # an evaluation has no such step
        least["optimizer"] = other["optimizer"] = None
    if recording.untrained:
        notes.append(f"note: no training step ({recording.untrained}); exact is of the model in evaluation")
    return ModelCounts(
        model=model,
        batch_size=batch_size,
        parameters=recording.parameters,
        exact={name: None if unknown[name] else flop for name, flop in least.items()},
        other_flop={name: None if unknown[name] else flop for name, flop in other.items()},
        not_understood=unsupported(table),
        attributions=attributions,
        causes=causes,
        notes=tuple(notes),
        at_least_flop=least,
        unknown_calls=unknown,
        attention=attention_flop(table, recording.mask_rules),
        peak=None if device is None else _peak(device, recording, not any(unknown[phase] for phase in PHASES)),
        recording=recording,
    )


def _peak(device: str, recording: CallRecording, is_whole: bool) -> StepPeak:
    """Return the peak of the products of forward and backward pass. is_whole: whether each call has a count."""
    phases = {phase for members in PHASES.values() for phase in members}
    flop = Counter[str]()
    for operation in recording.training or recording.operations:
        if operation.phase in phases:
            flop[input_dtype(operation)] += model_flop(operation)
    flop_by_dtype = {dtype: number for dtype, number in flop.most_common() if number}
    if not flop_by_dtype or not is_whole:
        return StepPeak(device, flop_by_dtype, reason="the step has no product" if is_whole else "a call has no count")
    try:
        whys = [why for dtype in flop_by_dtype if (why := peak_refusal(device, dtype))]
    except ValueError as fault:  # a format that has no peak on any device
        whys = [str(fault)]
    return StepPeak(device, flop_by_dtype, None if whys else mixed_peak(device, flop_by_dtype), whys[0] if whys else "")


def unexplained(attributions: Iterable[Attribution | None]) -> int | float | None:
    """Return the FLOP that no cause explains in all the passes that a counter counted; None if one is unknown."""
    left = [
        attribution.unexplained_flop
        for attribution in attributions
        if attribution is not None and has_count(attribution)
    ]
    known = [value for value in left if value is not None]
    return sum(known) if known and len(known) == len(left) else None


def has_count(attribution: Attribution) -> bool:
    """Return whether a counter counted this pass, at least in part."""
    return attribution.status == "ok" and (
        attribution.native_value is not None or attribution.at_least_flop is not None
    )


def cause_sums(causes: Iterable[AttributionCause], counter: str, phases: Sequence[str]) -> dict[str, Fraction]:
    """Return cause → its exact contribution to a counter's number of these passes."""
    sums: dict[str, Fraction] = {}
    for cause in causes:
        if cause.counter == counter and cause.phase in phases:
            sums[cause.cause] = sums.get(cause.cause, Fraction(0)) + Fraction(cause.flop)
    return sums


def document(answer: ModelCounts) -> dict[str, Any]:
    """Return the answer as JSON: every documented key is there, unknown is null."""
    step = answer.peak
    peak = step and step.peak
    return {
        "model": answer.model,
        "batch_size": answer.batch_size,
        "parameters": answer.parameters,
        "exact": {
            **{f"{phase}_flop": answer.exact.get(phase) for phase in (*PHASES, "optimizer", "recompute")},
            "at_least_flop": {phase: answer.at_least_flop.get(phase) for phase in answer.exact},
            "unknown_calls": {phase: answer.unknown_calls.get(phase, 0) for phase in answer.exact},
            "unknown_time_ratio": None,  # nothing is timed
            "other_flop": dict(answer.other_flop),
            "not_understood": sorted(answer.not_understood),
        },
        "attention": _attention(answer),
        "peak": step
        and {
            "device": step.device,
            "flop_by_dtype": dict(step.flop_by_dtype),
            "operation_weighted_flop_per_s": peak and peak.flop_per_s,
            "single_format": peak and peak.single.unit,
            "single_format_flop_per_s": peak and peak.single.flop_per_s,
            "by_format": {
                unit: {"flop_per_s": own.flop_per_s, "source": own.source, "verification": own.verification}
                for unit, own in (peak.by_unit if peak else {}).items()
            },
            "reason": step.reason or None,
        },
        "counters": [_counter(answer, counter) for counter in answer.counters],
        "notes": list(answer.notes),
    }


def _attention(answer: ModelCounts) -> dict[str, Any]:
    """Return convention → FLOP of both passes, None where unknown; and the reasons."""
    conventions: dict[str, Any] = {}
    for convention in CONVENTIONS:
        passes = {f"{phase}_flop": answer.attention_pass(convention, phase) for phase in PHASES}
        if convention == "dense":
            passes = {f"{phase}_flop": answer.exact.get(phase) for phase in PHASES}
        conventions[convention] = None if all(flop is None for flop in passes.values()) else passes
    reasons = dict(answer.attention.reasons) if answer.attention else dict.fromkeys(CONVENTIONS[1:], NOT_LISTED)
    return {**conventions, "reasons": reasons}


def _counter(answer: ModelCounts, counter: str) -> dict[str, Any]:
    passes = {phase: attribution for phase in PHASES if (attribution := answer.attribution(counter, phase)) is not None}
    first = next(iter(passes.values()))
    return {
        "counter": counter,
        "status": first.status,
        "reason": first.reason or None,
        "convention": first.native_unit or None,
        **{f"{phase}_native": passes[phase].native_value if phase in passes else None for phase in PHASES},
        **{f"{phase}_flop": passes[phase].flop if phase in passes else None for phase in PHASES},
        "parameters": first.parameters,
        "duration_s": first.duration_s,
        "peak_memory_bytes": first.peak_memory_bytes,
        "ignored": dict(first.ignored),
        "not_understood": dict(first.not_understood),
        "unexplained_flop": unexplained(passes.values()),
        "causes": [
            {name: getattr(cause, name) for name in ("phase", "cause", "kind", "module", "flop")}
            for cause in answer.causes
            if cause.counter == counter
        ],
    }
