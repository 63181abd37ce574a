"""Formats a run's results as text: quantities with units, names of columns and cells, verdicts.

The functions take numbers, rows of a run or a `View` (one cell), and return text. A cell is named by its model, batch
size and precision, and by what else distinguishes it from the run's other cells. Bytes are the unfused sum over
operations, an estimate. The sentence about a whole run is in `reports/sweep/headline.py`.
"""

import functools
import math
import re
from collections.abc import Sequence

from analysis.devices.precisions import PRECISIONS
from cleaning.reconcile.derived import View
from results.records.answers import Utilization
from results.records.cell import Run

OF_WHAT = {
    "datasheet": "the datasheet peak",
    "clock": "the peak at the observed clock",
    "ceiling": "the session's measured peak",
    "sustained": "the session's measured peak at the power limit",
    "user": "the given peak",
    "paired_ceiling": "the measured peak",
}
SHORT = {
    "datasheet": "sheet",
    "clock": "clock",
    "ceiling": "ceiling",
    "sustained": "sustained",
    "user": "given",
    "paired_ceiling": "paired",
}

MEASURED_PEAKS = ("ceiling", "paired_ceiling")
"""Denominators that were measured on the device."""

STATUS_TEXTS = {
    "unavailable": "not available",
    "out_of_memory": "out of memory",
    "timeout": "ran past its limit",
    "device_error": "device error",
    "crashed": "the worker died",
    "interrupted": "interrupted",
    "invalid": "not valid",
}

MARK_TEXTS = {
    "above_one": "above 1: see warnings",
    "executed_differs": "count and step differ",
    "profile_differs": "count and profile differ",
    "ceiling_too_low": "measured peak too low",
    "ceiling_doubtful": "peak under load?",
    "counter_too_high": "a counter is too high",
    "busy": "busy machine",
}
"""Code of a warning (the part before ":") → its text in a verdict, the worst first."""

WIDE = 0.5
"""Half of an interval ÷ its value; from this ratio on, both ends of the interval are shown."""

NEAR_PEAK_RATIO = 0.8
"""Share of a measured peak from which a cell is "near" it."""

CAPPED_RATIO = 0.5
"""Share of a window's polls from which the power cap is named as the cell's limit."""

DASH = "–"
"""Text for unknown in a table."""

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
"""Powers of ten, the largest first, with their SI prefixes."""

_PAIRS = re.compile(r", timed beside the steps, \d+ pairs$")
_FAULT_SHARE = re.compile(r"page_faults: \d+ a step, and (\d+)% of the processor time")
_SITTING = re.compile(r"\bsitting(s?)\b")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w|\.\d)")


def scaled(value: float, count: int = 3) -> tuple[float, str]:
    """Return the power of ten for a value shown with `count` digits, and its prefix: 1.53e11 → (1e9, "G")."""
    return next((pair for pair in PREFIXES if abs(value) >= pair[0] * (1 - 0.5 * 10.0**-count)), PREFIXES[-1])


def si(value: float, unit: str, count: int = 3) -> str:
    """Write `count` significant digits with a prefix: 1.53e11, "FLOP/s" → "153 GFLOP/s"."""
    scale, prefix = scaled(value, count)
    return f"{digits(value / scale, count)} {prefix}{unit}".rstrip()


def digits(value: float, count: int = 3) -> str:
    """Return a number with `count` significant digits, never in exponents: 1234.6 → "1235", 0.07234 → "0.0723"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{count - 1}e}")  # first, because 9.996 has one digit before the point and 10.0 has two
    whole = math.floor(math.log10(abs(rounded))) + 1
    return f"{value:.{max(0, count - whole)}f}"


LEAST_SHOWN_RATIO = 1e-6
"""Below it a ratio is shown as smaller than this: an interval of 2e-16 is the rounding of a sum, no measurement."""


def percent(ratio: float) -> str:
    """Write 0.4123 → "41 %", 0.0723 → "7.2 %", 0.0004 → "0.040 %", 2e-16 → "< 0.0001 %"."""
    if 0 < ratio < LEAST_SHOWN_RATIO:
        return f"< {digits(100 * LEAST_SHOWN_RATIO, 1)} %"
    return f"{digits(100 * ratio, 2)} %"


def merged(texts: Sequence[str]) -> str:
    """Merge texts that only differ in their numbers, each number becoming a range from its smallest to its largest.

    Raises ValueError for texts that differ in their words (`skeleton`).
    """
    texts = list(dict.fromkeys(texts))
    if len({skeleton(text) for text in texts}) != 1:
        raise ValueError(f"expected texts that differ in their numbers alone, got {texts}")
    columns = (sorted(set(numbers), key=float) for numbers in zip(*map(_NUMBER.findall, texts), strict=True))
    ranges = iter([n[0] if len(n) == 1 else f"{n[0]} to {n[-1]}" for n in columns])
    return _NUMBER.sub(lambda _: next(ranges), texts[0])


def with_session(text: str) -> str:
    """Return a stored warning or reason with "session" in place of "sitting", the word of older versions."""
    return _SITTING.sub(r"session\1", text)


@functools.lru_cache(1 << 12)
def skeleton(text: str) -> str:
    """Return a text without its numbers; digits inside words, as in conv2d, are not numbers."""
    return _NUMBER.sub("#", text)


def shortened_name(name: str, letters: int) -> str:
    """Return a name, or if it is long its beginning and its end around an ellipsis, since names differ in either."""
    if len(name) <= letters:
        return name
    head = (letters - 1) // 3
    return f"{name[:head]}…{name[len(name) - (letters - 1 - head) :]}"


def half_width(row: Utilization) -> float | None:
    """Return half of the 95 % interval of the step time ÷ its mean; None without an interval."""
    if row.time_s is None or row.time_low_s is None or row.time_high_s is None:
        return None
    return (row.time_high_s - row.time_low_s) / (2 * row.time_s)


def shown_interval(row: Utilization) -> tuple[float | None, float | None]:
    """Return the 95 % interval that is shown for a utilization: where cells were repeated, that of any window of the
    run, else that of its own window. An unknown end is None."""
    if row.windows_low_ratio is not None:
        return row.windows_low_ratio, row.windows_high_ratio
    return row.utilization_low_ratio, row.utilization_high_ratio


def used_half_width(view: View) -> float | None:
    """Return half of the 95 % interval of the shown utilization ÷ it; None without one.

    Relative to a paired ceiling, and where cells were repeated, it is the ratio's own, elsewhere that of the step time.
    """
    row = view.headline
    if row is None or (row.denominator != "paired_ceiling" and row.windows_low_ratio is None):
        return None if view.step is None else half_width(view.step)
    low, high = shown_interval(row)
    if not row.utilization_ratio or low is None or high is None:
        return None
    return (high - low) / (2 * row.utilization_ratio)


def used_interval(view: View) -> str:
    """Return the 95 % interval of the shown utilization: half of it ÷ the utilization, or its ends where that is
    WIDE."""
    width = used_half_width(view)
    low, high = (None, None) if view.headline is None else shown_interval(view.headline)
    if width is None or width < WIDE or low is None or high is None:
        return DASH if width is None else percent(width)
    return f"{digits(100 * low, 2)} to {digits(100 * high, 2)} %"


def verdict(view: View) -> str:
    """Return why the utilization of one cell is not higher, in a few words; for a cell with a problem, the worst
    problem."""
    run, shown = view.run, view.headline or view.timed_row
    if not view.measured:
        return STATUS_TEXTS.get(run.status, run.status)
    if run.status == "not_converged":
        return "not converged"
    counted_by = None if shown is None else (shown.method, shown.numerator_source)
    rows = [row for row in view.fractions if counted_by in (None, (row.method, row.numerator_source))]
    codes = {mark.split(":")[0] for row in rows for mark in row.warnings}
    codes -= {"ceiling_doubtful"} if shown is not None and shown.denominator != "ceiling" else set()
    codes -= {"busy"} if run.device != "cpu" and not run.host_bound else set()
    for code, text in MARK_TEXTS.items():
        if code in codes:
            return text
    if run.host_bound:
        return "host-bound: scaler sync" if PRECISIONS[run.precision].scaler else "host-bound"
    if match := next(filter(None, map(_FAULT_SHARE.match, run.warnings)), None):
        return f"page faults: {match[1]} %"
    capped = None if shown is None else view.fraction(shown.method, "sustained")
    if capped is not None and capped.utilization_ratio and (capped.power_capped_ratio or 0) >= CAPPED_RATIO:
        return f"power cap, {percent(capped.utilization_ratio)} sustained"
    return "clock held down" if "clock_limited" in codes else _cause(view)


def source_name(source: str) -> str:
    """Return a peak's source without how often it was timed with the steps, which differs between cells."""
    return _PAIRS.sub("", source)


def _cause(view: View) -> str:
    """Return the limit of a cell without problems: by its utilization, its batch, and FLOP per byte of its
    operations."""
    headline, intensity = view.headline, view.counted.flop_per_byte if view.counted else None
    if headline is None or headline.peak_flop_per_s is None:
        unknown = "no whole count" if view.partial else "no peak known"
        return unknown if view.timed_row else "no count and no time"
    measured = (view.fraction(headline.method, denominator) for denominator in (headline.denominator, *MEASURED_PEAKS))
    ratios = [row.utilization_ratio or 0.0 for row in measured if row is not None and row.denominator in MEASURED_PEAKS]
    if ratios and ratios[0] >= NEAR_PEAK_RATIO:
        return "near the measured peak"
    if view.small_batch:
        return "small batch"
    if intensity is None:
        return "bytes not counted"
    if view.memory_bytes_per_s is None:
        return f"{digits(intensity, 2)} FLOP/byte"
    return "memory-bound" if intensity * view.memory_bytes_per_s < headline.peak_flop_per_s else "slow kernels"


def si_time(seconds: float) -> str:
    """Return a duration with three digits: "1.24 s", "38.1 ms", "412 µs"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9995:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds / 1e-6)} µs"


_OF_IMAGES = ("layout=", "image_size=", "num_classes=")
"""Parts of a variant that only cells of images have."""


def shared_variant(views: Sequence[View]) -> str:
    """Return the parts of a variant that all cells have, and those of images that all cells of images have."""
    variants = {parts(view.variant) for view in views}
    of_images = {parts(view.variant) for view in views if view.run.items_per_step in (None, view.run.batch_size)}
    return ", ".join(
        part
        for part in dict.fromkeys(part for view in views for part in parts(view.variant))
        if all(part in variant for variant in (of_images if part.startswith(_OF_IMAGES) else variants))
    )


def own_lines(view: View, shared: str) -> list[str]:
    """Return the lines of a cell's variant, without the parts that all cells share."""
    return variant_lines(_own(view, shared))


def run_name(run: Run) -> str:
    """Name a cell in a few words, without its variant."""
    return f"{run.model} b{run.batch_size} {run.precision}{repeat_text(run)}"


def cell_name(view: View, shared: str = "") -> str:
    """Name a cell in a few words, without the parts of its variant that all cells share."""
    return ", ".join(filter(None, (run_name(view.run), _own(view, shared))))


def _own(view: View, shared: str) -> str:
    return ", ".join(part for part in parts(view.variant) if part not in parts(shared))


@functools.lru_cache(1 << 10)
def parts(variant: str) -> tuple[str, ...]:
    """Split at commas, except those in a value: a part begins with a name."""
    return tuple(part for part in re.split(r", (?=\w+=)", variant) if part)


def repeat_text(run: Run) -> str:
    """Return the number of a repeat among several."""
    return f" #{run.repeat + 1}" if run.repeat else ""


_NAMED = ("malloc",)
"""Parts whose values need their names to be understood."""


def variant_lines(variant: str) -> list[str]:
    """Return a variant without names where values are clear: layout=channels_last, compile=true → channels_last,
    compile."""
    lines = []
    for part in parts(variant):
        name, _, value = part.partition("=")
        is_clear = value[:1].isalpha() and value != "false" and name not in _NAMED
        lines.append(name if value == "true" else value if is_clear else part)
    return lines


def ceiling_name(denominator: str, peak_flop_per_s: float | None, source: str) -> str:
    """Return the measured ceiling by which a ratio is divided; "" for any other denominator, and without a peak.

    A ceiling of one unit is identified by its value. One of several units depends on how much of a cell runs on each,
    so it is identified by its sources.
    """
    if denominator != "ceiling" or peak_flop_per_s is None or peak_flop_per_s != peak_flop_per_s:
        return ""
    return source if "; " in source else f"{peak_flop_per_s:.9g}"
