"""What a self-test says of a device (`python -m runners.doctor --self-test`), and the limits of its checks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from analysis.devices import peaks
from analysis.devices.precisions import PRECISIONS

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

RATES = ("rate ", "convolution ")
"""How the checks of a product's and of a convolution's rate begin; the precision follows."""

CHECKS = (
    "events", "sleep", "count", "flags", "ieee fp32", "intervals", "memory resnet18", "memory mobilenet_v2"
)  # fmt: skip
"""All checks but those of rates."""

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
    texts = [test.device, test.verdict, *(text for each in checks for text in (each.check, each.verdict))]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no self-test: a text is none")
    return test


def faults(test: SelfTest) -> Iterator[str]:
    """Why a self-test does not say that numbers may be believed."""
    verdicts = {each.check: each.verdict for each in test.checks}
    if failed := [name for name, verdict in verdicts.items() if verdict == FAILED]:
        yield f"{', '.join(failed)} failed"
    if test.verdict != OK:
        yield f"its verdict is {test.verdict!r}"
    rates = [f"{rate}{precision}" for rate in RATES for precision in PRECISIONS]
    if missing := [name for name in (*CHECKS, *rates) if name not in verdicts]:
        yield f"nothing is said of {', '.join(missing)}"
    yield from (f"{name} is unavailable" for name in NEEDED if verdicts.get(name) == UNAVAILABLE)


def rate_bounds(known: peaks.Device, unit: str) -> tuple[float, float]:
    """Lowest and highest believable FLOP/s of a kernel in this unit of a device, which has a peak in it."""
    peak = known.peaks[unit]
    vector = 0.0 if unit == "fp32" else known.peaks.get("fp32", 0.0)
    least, most = RATE_RATIOS
    return max(least * peak, min(most * vector, TENSOR_RATIO * peak)), most * peak
