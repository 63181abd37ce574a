"""What a self-test says of a device (`python -m runners.doctor --self-test`), and what its checks must come out as.

The limits are here, not in the file, so that a file cannot say of itself that it is good enough.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from analysis.devices import peaks
from analysis.devices.precisions import PRECISIONS
from cleaning.facts.values import date_fault

SELF_TEST_FILE = "self_test.json"
"""The document of `--self-test` in the directory of the run that it is evidence for."""

OK, FAILED, UNAVAILABLE = "ok", "failed", "unavailable"
REPORTED = "reported"
"""The verdict of a check whose number is reported and not judged."""
UNFINISHED = "unfinished"
"""The verdict over a test whose checks were not all tried when its document was written."""

RATE_RATIOS = (0.05, 1.02)
"""What a kernel reaches of its unit's datasheet peak: less is a device that something holds down, more cannot be."""
TENSOR_RATIO = 0.2
"""A tensor unit must do more than the vector units could, but this share of its own peak is always enough: there are
devices whose tensor units are no faster than that (GeForce in tf32)."""

EVENTS_RATIO, SLEEP_RATIO, MEMORY_RATIO = 0.03, 0.05, 0.02
FP32_ERROR = 2e-5
"""Largest error of a product in IEEE fp32, 512 terms, relative to the largest element; TF32's is near 1e-3."""

REPEATS, BLOCKS, FEWEST_COVERED = 8, 10, 6
"""Intervals of ten blocks each; fewer than 6 of 8 that cover the common mean have a chance of 0.6 % at 95 %."""

CLOCK_STEP_HZ = 15e6
"""By which NVIDIA's clocks move."""

LIMITS: Mapping[str, tuple[float, float]] = {
    "events": (1 - EVENTS_RATIO, 1 + EVENTS_RATIO),
    "sleep": (2 * (1 - SLEEP_RATIO), 2 * (1 + SLEEP_RATIO)),
    "count": (1, 1),
    "flags": (0, 0),
    "ieee fp32": (0.0, FP32_ERROR),
    "intervals": (FEWEST_COVERED, REPEATS),
    "memory resnet18": (1 - MEMORY_RATIO, 1 + MEMORY_RATIO),
    "memory mobilenet_v2": (1 - MEMORY_RATIO, 1 + MEMORY_RATIO),
}
"""Check → least and most of what is found; those of rates are `rate_bounds`."""

REPORTS = ("memory resnet18", "memory mobilenet_v2")
"""Checks whose limits no real GPU has confirmed: beyond them they are `REPORTED`, not failed."""

RATES = ("rate ", "convolution ")
"""How the checks of a product's and of a convolution's rate begin; the precision follows."""

RETIRED = "energy"
"""A check of earlier versions, which says nothing here."""

NEEDED = ("events", "sleep", "count", "flags", "ieee fp32", "intervals")
"""Checks that every GPU can answer, whatever its driver says of it and whether a sheet is known."""


@dataclass(frozen=True)
class CheckResult:
    """One check. found: a number in SI units or a ratio, None where there is none; expected: in words."""

    check: str
    verdict: str
    found: float | None
    expected: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """device: its name as its driver prints it. tested_at: UTC, ISO 8601."""

    device: str
    verdict: str
    checks: tuple[CheckResult, ...]
    driver: str = ""
    torch_version: str = ""
    harness_version: str = ""
    tested_at: str = ""


def parsed(document: Any) -> SelfTest:
    """The self-test that a JSON document holds. Raises ValueError, one line, for one that holds none."""
    if not isinstance(document, Mapping) or not isinstance(document.get("checks"), list):
        raise ValueError("expected an object with a list of checks")
    names = {field.name for field in fields(SelfTest)}
    try:
        checks = tuple(CheckResult(**each) for each in document["checks"])
        test = SelfTest(**{**{name: document[name] for name in names & set(document)}, "checks": checks})
    except TypeError as fault:
        raise ValueError(f"no self-test: {fault}") from fault
    texts = [getattr(test, name) for name in sorted(names - {"checks"})]
    texts += [text for each in checks for text in (each.check, each.verdict, each.expected, each.reason)]
    numbers = [each.found for each in checks]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no self-test: a text is none")
    if not all(value is None or (isinstance(value, (int, float)) and math.isfinite(value)) for value in numbers):
        raise ValueError("no self-test: what a check found is no finite number")
    return test


def faults(test: SelfTest) -> Iterator[str]:
    """Why a self-test does not say that numbers may be believed, or contradicts itself."""
    failed = [each.check for each in test.checks if each.verdict == FAILED]
    if failed:
        yield f"{', '.join(failed)} failed"
    if test.verdict != OK:
        yield f"its verdict is {test.verdict!r}"
    yield from filter(None, (date_fault("tested_at", test.tested_at),))
    names = Counter(each.check for each in test.checks)
    if missing := [
        name for name in (*LIMITS, *(f"{rate}{each}" for rate in RATES for each in PRECISIONS)) if name not in names
    ]:
        yield f"nothing is said of {', '.join(missing)}"
    if again := [name for name, times in names.items() if times > 1]:
        yield f"{', '.join(again)} again"
    for each in (each for each in test.checks if each.check != RETIRED):
        yield from (f"{each.check or 'a check'} {words}" for words in _fault(each, test.device))


def _fault(each: CheckResult, device: str) -> Iterator[str]:
    if each.verdict == UNAVAILABLE:
        if each.check in NEEDED:
            yield f"is unavailable: {each.reason}"
        if each.found is not None or not each.reason:
            yield f"is unavailable, with {each.found} and the reason {each.reason!r}"
    elif each.verdict == OK:
        low, high = limits(each.check, device)
        if each.reason or not each.expected:
            yield f"is ok with the reason {each.reason!r}, expected {each.expected!r}"
        if each.found is None or not low <= each.found <= high:
            yield f"is ok with {each.found}, {low:.6g} to {high:.6g} is expected"
    elif each.verdict == REPORTED and each.check in REPORTS:
        if each.found is None or not each.reason:
            yield f"is reported, with {each.found} and the reason {each.reason!r}"
    elif each.verdict != FAILED:
        yield f"has the verdict {each.verdict!r}"


def limits(check: str, device: str) -> tuple[float, float]:
    """Least and most of what a check may find on a device; of one that is not known nothing is right."""
    rate = next((rate for rate in RATES if check.startswith(rate)), None)
    if rate is None:
        return LIMITS.get(check, (math.inf, -math.inf))
    policy, known = PRECISIONS.get(check.removeprefix(rate)), peaks.lookup(device)
    if policy is None or known is None:
        return (math.inf, -math.inf)
    unit = policy.matmul_unit if rate == RATES[0] else policy.convolution_unit
    return rate_bounds(known, unit) if unit in known.peaks else (math.inf, -math.inf)


def rate_bounds(known: peaks.Device, unit: str) -> tuple[float, float]:
    """Lowest and highest believable FLOP/s of a kernel in this unit of a device, which has a peak in it."""
    peak = known.peaks[unit]
    vector = 0.0 if unit == "fp32" else known.peaks.get("fp32", 0.0)
    least, most = RATE_RATIOS
    return max(least * peak, min(most * vector, TENSOR_RATIO * peak)), most * peak
