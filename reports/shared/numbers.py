"""What the numbers of a run mean in plain words: quantities, and a verdict for each cell.

Says only what the rows hold. The sentence about a whole run is in `closing`. Bytes are the unfused sum over operations,
an estimate.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

from cleaning.reconcile.view import View
from results.records.answers import Utilization
from results.records.cell import Run

OF_WHAT = {
    "datasheet": "the datasheet peak",
    "clock": "the peak at the observed clock",
    "ceiling": "the measured ceiling",
    "user": "the given peak",
    "derived": "the derived peak of its cores",
    "paired_ceiling": "the ceiling timed beside its steps",
}
SHORT = {
    "datasheet": "sheet",
    "clock": "clock",
    "ceiling": "ceiling",
    "user": "given",
    "derived": "derived",
    "paired_ceiling": "paired",
}

MEASURED_PEAKS = ("ceiling", "paired_ceiling")
"""Denominators that were timed on the device."""

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
    "ceiling_too_low": "beats the measured ceiling",
    "ceiling_doubtful": "ceiling under load?",
    "counter_too_high": "a counter counts too much",
    "busy": "others were busy here",
}
"""Code of a warning ("above_one: …") → its place in a verdict, the gravest first."""

DASH = "–"
"""What a table shows of what is not known."""

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
"""Powers of ten, the largest first, and what SI calls them."""

_PAIRS = re.compile(r", timed beside the steps, \d+ pairs$")
_FAULT_SHARE = re.compile(r"page_faults: \d+ a step, and (\d+)% of the processor time")
_STEP_WIDTH = re.compile(r"step_time: its own interval is ±(\d+\.\d+)%")
_ALONE = re.compile(r"disturbed: .* are used: (\S+) ms a step, (\S+) ms without their waits")
_SITTING = re.compile(r"\bsitting(s?)\b")
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


LEAST_SHOWN_RATIO = 1e-6
"""Below it a ratio is shown as smaller than this: an interval of 2e-16 is the rounding of a sum, no measurement."""


def percent(ratio: float) -> str:
    """0.4123 → "41 %", 0.0723 → "7.2 %", 0.0004 → "0.040 %", 2e-16 → "< 0.0001 %"."""
    if 0 < ratio < LEAST_SHOWN_RATIO:
        return f"< {digits(100 * LEAST_SHOWN_RATIO, 1)} %"
    return f"{digits(100 * ratio, 2)} %"


def merged(texts: Sequence[str]) -> str:
    """Texts that differ in their numbers alone as one, each number from its smallest to its largest.

    Raises ValueError for texts that differ in their words (`skeleton`).
    """
    texts = list(dict.fromkeys(texts))
    if len({skeleton(text) for text in texts}) != 1:
        raise ValueError(f"expected texts that differ in their numbers alone, got {texts}")
    columns = (sorted(set(numbers), key=float) for numbers in zip(*map(_NUMBER.findall, texts), strict=True))
    found = iter([n[0] if len(n) == 1 else f"{n[0]} to {n[-1]}" for n in columns])
    return _NUMBER.sub(lambda _: next(found), texts[0])


def session_words(text: str) -> str:
    """A stored warning or reason with "session" where the rows, which keep their words, have "sitting"."""
    return _SITTING.sub(r"session\1", text)


@functools.lru_cache(1 << 12)
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


def shown_interval(row: Utilization) -> tuple[float | None, float | None]:
    """The 95 % interval of a utilization that is shown: where cells were repeated, that of any window of the run, else
    that of its own window. An end that is not known is None."""
    if row.windows_low_ratio is not None:
        return row.windows_low_ratio, row.windows_high_ratio
    return row.utilization_low_ratio, row.utilization_high_ratio


def used_half_width(view: View) -> float | None:
    """Half of the 95 % interval of the shown utilization ÷ it; None without one.

    Over a ceiling timed beside the steps, and where cells were repeated, it is the ratio's own, elsewhere that of the
    step time.
    """
    row = view.headline
    if row is None or (row.denominator != "paired_ceiling" and row.windows_low_ratio is None):
        return None if view.step is None else half_width(view.step)
    low, high = shown_interval(row)
    if not row.utilization_ratio or low is None or high is None:
        return None
    return (high - low) / (2 * row.utilization_ratio)


def verdict(view: View) -> str:
    """One line on one cell: what went wrong, else what holds it back, else how near to its ceiling it is."""
    if not view.measured:
        return STATUS_WORDS.get(view.run.status, view.run.status)
    parts = []
    if view.run.status == "not_converged":
        parts.append("not converged")
    if view.run.host_bound:
        parts.append("host-bound: the GPU waits")
    shown = view.headline or view.timed_row
    counted_by = None if shown is None else (shown.method, shown.numerator_source)
    warned = [row for row in view.fractions if row.warnings]
    rows = [row for row in warned if counted_by in (None, (row.method, row.numerator_source))]
    codes = {mark.split(":")[0] for row in rows for mark in row.warnings}
    codes -= {"ceiling_doubtful"} if shown is not None and shown.denominator != "ceiling" else set()
    marked = {**MARK_WORDS, "busy": MARK_WORDS["busy"] + _idle_range(view.run)}
    parts += [words for code, words in marked.items() if code in codes]
    parts += [f"page faults: {share} %" for share in _of_warning(view.run, _FAULT_SHARE)]
    parts += [f"step time ±{float(width):.0f} %" for width in _of_warning(view.run, _STEP_WIDTH)]
    limited = ["clock held down"] if "clock_limited" in codes else []
    return "; ".join((parts or [_placed(view), *limited])[:2])


def _of_warning(run: Run, pattern: re.Pattern[str]) -> list[str]:
    """The number that a warning of the cell names, if it has this one."""
    return [found[1] for text in run.warnings if (found := pattern.match(text))]


def _idle_range(run: Run) -> str:
    """Between what a step takes without the others, where each of its blocks waited for them; empty elsewhere."""
    for found in filter(None, map(_ALONE.match, run.warnings)):
        most_s, least_s = (float(number) / 1e3 for number in found.groups())
        least, most = (si_time(each) for each in (least_s, most_s))
        if not least_s:
            return f" (alone {most} a step or less)"
        same_unit = least.split()[-1] == most.split()[-1]
        return f" (alone {least.split()[0] if same_unit else least} to {most} a step)"
    return ""


def source_name(source: str) -> str:
    """A peak's source without how often it was timed beside the steps, which is each cell's own."""
    return _PAIRS.sub("", source)


def _placed(view: View) -> str:
    """Where a cell without complaints stands."""
    headline = view.headline
    if headline is None:
        unknown = "no whole count" if view.partial else "no peak known"
        return f"{unknown}: see reasons" if view.timed_row else "no count and no time"
    ceiling = None if headline.denominator in MEASURED_PEAKS else view.fraction(headline.method, "ceiling")
    if ceiling is not None and ceiling.utilization_ratio is not None:
        return f"{percent(ceiling.utilization_ratio)} of the ceiling"
    intensity = view.counted.flop_per_byte if view.counted else None
    return f"{digits(intensity, 2)} FLOP/byte" if intensity is not None else f"of {OF_WHAT[headline.denominator]}"


def si_time(seconds: float) -> str:
    """A duration with three digits: "1.24 s", "38.1 ms", "412 µs"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9995:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds / 1e-6)} µs"
