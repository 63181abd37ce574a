"""What the numbers of a run mean in plain words: quantities, a verdict for each cell, one sentence for the run.

Says only what the rows hold. Bytes are the unfused sum over operations, an estimate: a low number of FLOP per byte
is offered beside a low utilization, not proved to be its cause.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from statistics import fmean

from reports.build import View
from results.records import Utilization

OF_WHAT = {
    "datasheet": "the datasheet peak",
    "clock": "the peak at the observed clock",
    "ceiling": "the measured ceiling",
    "user": "the given peak",
}
SHORT = {"datasheet": "sheet", "clock": "clock", "ceiling": "ceiling", "user": "given"}

STATUS_WORDS = {
    "unavailable": "not available",
    "out_of_memory": "out of memory",
    "timeout": "ran past its limit",
    "device_error": "device error",
    "crashed": "the worker died",
    "interrupted": "interrupted",
    "invalid": "not valid",
}

MARK_WORDS = {
    "above_one": "above 1: see warnings",
    "executed_differs": "trace and real step differ",
    "profile_differs": "profile and count differ",
    "not_understood": "count may be too low",
    "ceiling_too_low": "beats the measured ceiling",
    "busy": "others were busy here",
}
"""Code of a warning ("above_one: …") → its place in a verdict, the gravest first."""

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
"""Powers of ten, the largest first, and what SI calls them."""

_WORTH_SAYING = 1.25
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w|\.\d)")


def si(value: float, unit: str) -> str:
    """Three significant digits with a prefix: 1.53e11, "FLOP/s" → "153 GFLOP/s"."""
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s * 0.9995), PREFIXES[-1])
    return f"{digits(value / scale)} {prefix}{unit}".rstrip()


def digits(value: float, count: int = 3) -> str:
    """A number with `count` significant digits, never in exponents: 1234.5 → "1234" or "1235", 0.07234 → "0.0723"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{count - 1}e}")  # first, because 9.996 has one digit before the point and 10.0 has two
    whole = math.floor(math.log10(abs(rounded))) + 1
    return f"{value:.{max(0, count - whole)}f}"


def percent(ratio: float) -> str:
    """0.4123 → "41 %", 0.0723 → "7.2 %", 0.0004 → "0.040 %"."""
    return f"{digits(100 * ratio, 2)} %"


def merged(texts: Sequence[str]) -> str:
    """Texts that differ in their numbers alone as one, each number from its smallest to its largest.

    Raises ValueError for texts that differ in their words (`skeleton`).
    """
    if len({skeleton(text) for text in texts}) != 1:
        raise ValueError(f"expected texts that differ in their numbers alone, got {texts}")
    columns = (sorted(set(numbers), key=float) for numbers in zip(*map(_NUMBER.findall, texts), strict=True))
    found = iter([n[0] if len(n) == 1 else f"{n[0]} to {n[-1]}" for n in columns])
    return _NUMBER.sub(lambda _: next(found), texts[0])


def skeleton(text: str) -> str:
    """A text without its numbers; digits inside words, as in conv2d, are no numbers."""
    return _NUMBER.sub("#", text)


def fitting(name: str, letters: int) -> str:
    """A name as it is, or its beginning and its end around an ellipsis: names differ in either."""
    if len(name) <= letters:
        return name
    head = (letters - 1) // 3
    return f"{name[:head]}…{name[len(name) - (letters - 1 - head) :]}"


def half_width(row: Utilization) -> float | None:
    """Half of the 95 % interval of the step time ÷ its mean; None without an interval."""
    if row.time_s is None or row.time_low_s is None or row.time_high_s is None:
        return None
    return (row.time_high_s - row.time_low_s) / (2 * row.time_s)


def verdict(view: View) -> str:
    """One line on one cell: what went wrong, else what holds it back, else how near to its ceiling it is."""
    if not view.measured:
        return STATUS_WORDS.get(view.run.status, view.run.status)
    parts = []
    if view.run.status == "not_converged":
        parts.append("not converged")
    if view.run.host_bound:
        parts.append("host-bound: the GPU waits")
    told = view.headline or view.timed
    rows = [row for row in view.fractions if told is None or (row.method, row.numerator_source) == _counted_by(told)]
    codes = {mark.split(":")[0] for row in rows for mark in row.warnings}
    parts += [words for code, words in MARK_WORDS.items() if code in codes]
    limited = ["clock held down"] if "clock_limited" in codes else []
    return "; ".join((parts or [_placed(view), *limited])[:2])


def _counted_by(row: Utilization) -> tuple[str, str]:
    return row.method, row.numerator_source


def _placed(view: View) -> str:
    """Where a cell without complaints stands."""
    headline = view.headline
    if headline is None:
        return "no peak known: see reasons" if view.timed else "no count and no time"
    ceiling = view.fraction(headline.method, "ceiling")
    if ceiling is not None and ceiling.denominator != headline.denominator and ceiling.utilization_ratio is not None:
        return f"{percent(ceiling.utilization_ratio)} of the ceiling"
    intensity = view.counted.flop_per_byte if view.counted else None
    return (
        f"{digits(intensity, 2)} FLOP per byte moved"
        if intensity is not None
        else f"of {OF_WHAT[headline.denominator]}"
    )


def closing_sentence(views: Sequence[View]) -> str:
    """One true sentence about the run that a person can act on."""
    told = [view for view in views if view.headline is not None]
    if not told:
        return _nothing(views)
    for sentence in (_models(told), _precisions(told), _batches(told)):
        if sentence:
            return sentence
    return _single(told[0])


def _nothing(views: Sequence[View]) -> str:
    timed = [view for view in views if view.timed]
    if timed:
        return "Steps were timed, but no peak is known for this device: pass --peak-tflops or measure a ceiling."
    reasons = sorted({STATUS_WORDS.get(view.run.status, view.run.status) for view in views})
    return f"No cell was measured: {', '.join(reasons) or 'the run holds none'}."


def _models(told: Sequence[View]) -> str:
    """Best and worst model at the same precision, batch size and denominator, and what their bytes say about it."""
    groups: dict[tuple[str, int, str, str, str], dict[str, list[View]]] = {}
    for view in told:
        run = view.run
        key = (run.precision, run.batch_size, _row(view).variant, _row(view).denominator, run.device)
        groups.setdefault(key, {}).setdefault(run.model, []).append(view)
    key, models = max(groups.items(), key=lambda item: (len(item[1]), item[0][1]))
    if len(models) < 2:
        return ""
    means = {model: fmean(_ratio(view) for view in same) for model, same in models.items()}
    best, worst = max(means, key=lambda model: means[model]), min(means, key=lambda model: means[model])
    if _overlap(_ratios(models[best][0]), _ratios(models[worst][0])):
        why = (
            "the intervals overlap" if _interval_known(models[best][0], models[worst][0]) else "an interval is missing"
        )
        return f"At {key[0]}, batch {key[1]}, {best} and {worst} are not told apart: {why}."
    of = OF_WHAT[key[3]]
    times = digits(means[best] / means[worst], 2)
    start = (
        f"At {key[0]}, batch {key[1]}, {best} uses {percent(means[best])} of {of} and {worst} {percent(means[worst])}"
    )
    return f"{start}, {times} times less{_because(models[best][0], models[worst][0])}."


def _because(best: View, worst: View) -> str:
    """What stands beside the difference: a waiting GPU, or fewer FLOP per byte."""
    if worst.run.host_bound and not best.run.host_bound:
        return f": with {worst.run.model} the GPU waits for the host"
    high = best.counted.flop_per_byte if best.counted else None
    low = worst.counted.flop_per_byte if worst.counted else None
    if not high or not low:
        return ""
    name = worst.run.model
    said = f"{digits(low, 2)} FLOP for each byte its operations read and write, {best.run.model} {digits(high, 2)}"
    if high / low >= _WORTH_SAYING:
        return f": {name} does {said} ({digits(high / low, 2)} times more)"
    return f", which bytes do not explain: {name} does {said}"


def _precisions(told: Sequence[View]) -> str:
    """One model at one batch size: the fastest precision against the slowest."""
    pair = _extremes(told, lambda view: (view.run.batch_size,), lambda view: view.run.precision)
    if pair is None:
        return ""
    fast, slow, times = pair
    start = f"{fast.run.model} at batch {fast.run.batch_size} trains {times} times as fast in {fast.run.precision}"
    return f"{start} as in {slow.run.precision}, {_against(fast, slow)}."


def _batches(told: Sequence[View]) -> str:
    """One model in one precision: the batch size with the most items per second against the one with the least."""
    pair = _extremes(told, lambda view: (view.run.precision,), lambda view: view.run.batch_size)
    if pair is None:
        return ""
    fast, slow, times = pair
    start = f"{fast.run.model} in {fast.run.precision} trains {times} times as many items a second"
    return f"{start} at batch {fast.run.batch_size} as at batch {slow.run.batch_size}, {_against(fast, slow)}."


def _extremes(
    told: Sequence[View], same: Callable[[View], tuple[object, ...]], differing: Callable[[View], object]
) -> tuple[View, View, str] | None:
    """Of cells alike but for one parameter the fastest, the slowest and how many times faster; None without two."""
    groups: dict[tuple[object, ...], list[View]] = {}
    for view in told:
        if _row(view).items_per_s is not None:
            groups.setdefault((view.run.model, view.run.device, _row(view).variant, *same(view)), []).append(view)
    group = max(groups.values(), key=lambda views: len({differing(view) for view in views}), default=[])
    if len({differing(view) for view in group}) < 2:
        return None
    ranked = sorted(group, key=lambda view: _row(view).items_per_s or 0.0)
    slow, fast = ranked[0], ranked[-1]
    if differing(slow) == differing(fast) or _overlap(_rates(fast), _rates(slow)):
        return None
    return fast, slow, digits((_row(fast).items_per_s or 0.0) / (_row(slow).items_per_s or 1.0), 2)


def _against(fast: View, slow: View) -> str:
    of_fast, of_slow = OF_WHAT[_row(fast).denominator], OF_WHAT[_row(slow).denominator]
    if of_fast == of_slow:
        return f"with {percent(_ratio(fast))} of {of_fast} against {percent(_ratio(slow))}"
    return f"with {percent(_ratio(fast))} of {of_fast} against {percent(_ratio(slow))} of {of_slow}"


def _row(view: View) -> Utilization:
    """The headline of a cell that has one."""
    if view.headline is None:
        raise ValueError(f"expected a cell with a utilization, got {view.run.cell_id} ({view.run.status})")
    return view.headline


def _ratio(view: View) -> float:
    return _row(view).utilization_ratio or 0.0


def _overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether two intervals share a point."""
    return a[0] <= b[1] and b[0] <= a[1]


def _ratios(view: View) -> tuple[float, float]:
    """The interval of the headline's ratio; everything from 0 up where there is none, which is never told apart."""
    row = _row(view)
    low, high = row.utilization_low_ratio, row.utilization_high_ratio
    return (0.0 if low is None else low, math.inf if high is None else high)


def _interval_known(*views: View) -> bool:
    return all(_row(view).utilization_high_ratio is not None for view in views)


def _rates(view: View) -> tuple[float, float]:
    """The interval of items per second, from that of the step time."""
    low, high = _ratios(view)
    scale = (_row(view).items_per_s or 0.0) / _ratio(view)
    return (low * scale, high * scale)


def _single(view: View) -> str:
    row = _row(view)
    ratio, time_s = _ratio(view), row.time_s or 0.0
    start = f"{view.run.model} at batch {view.run.batch_size} in {view.run.precision}"
    if ratio > 1:
        return f"{start} ran at {digits(ratio)} times {OF_WHAT[row.denominator]}: doubt that peak before the model."
    what = {"one": "one sample", "epoch": "its epoch"}.get(row.method, "its step")
    at_peak = f"{what} would take {si_time(time_s * ratio)} instead of {si_time(time_s)}"
    return f"{start} uses {percent(ratio)} of {OF_WHAT[row.denominator]}: at all of it {at_peak}."


def si_time(seconds: float) -> str:
    """A duration with three digits: "1.24 s", "38.1 ms", "412 µs"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9995:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds / 1e-6)} µs"
