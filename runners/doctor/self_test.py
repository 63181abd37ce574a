"""`python -m runners.doctor --self-test`: may numbers of this program be believed on this device?

Known work, and what it must come out as: rates of products and convolutions against the datasheet, device events that
agree with the wall, planted sleeps, FLOP counted and FLOP of the calls whose kernels ran, energy against power × time,
flags read back, fp32 that is IEEE, intervals that cover the mean, and the predicted memory of two models. Each check
says what it found and what was expected; one that this device cannot answer is `unavailable` with the reason, never a
silent pass. Less than three minutes on a GPU.

Not claimed: that a device which passes has no fault. A rate is only compared with the datasheet, energy only against
the same board's own power, and no kernel's result is looked at but those of one product and one convolution.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from analysis.devices.precisions import PRECISIONS
from cleaning.facts.self_test import UNFINISHED
from results.errors import Unavailable, one_line
from runners.doctor import known_rates, known_work
from runners.doctor.known_work import FAILED, OK, UNAVAILABLE, Check, CheckResult, DeviceUnderTest

LONGEST_REASON = 300

CHECKS: Mapping[str, Check] = {
    **{f"rate {name}": known_rates.products(name) for name in PRECISIONS},
    **{f"convolution {name}": known_rates.convolutions(name) for name in PRECISIONS},
    "events": known_rates.events,
    "sleep": known_rates.sleep,
    "count": known_work.count,
    "energy": known_rates.energy,
    "flags": known_work.flags_read_back,
    "ieee fp32": known_work.ieee,
    "intervals": known_rates.intervals,
    "memory resnet18": known_work.memory("resnet18", 8),
    "memory mobilenet_v2": known_work.memory("mobilenet_v2", 8),
}
"""Name of a check → what makes it, in the order in which they run."""


GROUPS = ("rate", "convolution", "memory")
"""Names for all checks that begin with them."""


def self_test(
    device: str,
    say: Callable[[str], None] = lambda line: None,
    only: Sequence[str] = (),
    budget_s: float = math.inf,
    keep: Callable[[dict[str, Any]], object] = lambda document: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """The document of `--self-test`: the device, each check, the verdict over all, and where and with what it was made.

    say: called with each check's name when it starts. only: checks or GROUPS; none: all. budget_s: no check is begun
    after so many seconds. keep: called with the document after each check but the last.
    """
    from measure.device.environment import device_facts, environment
    from results.store.manifest import harness_version

    place, here = device_facts(device), environment()
    asked = DeviceUnderTest(device, str(place.name or ""), place.multiprocessors)
    begun, begun_s, done = datetime.now(UTC), clock(), list[CheckResult]()

    def document(verdict: str) -> dict[str, Any]:
        failed = any(each.verdict == FAILED for each in done)
        return {
            "device": asked.name,
            "checks": [asdict(each) for each in done],
            "verdict": FAILED if failed else verdict,
            "driver": str(here.host.driver or ""),
            "torch_version": str(here.torch.torch or ""),
            "harness_version": harness_version(),
            "tested_at": f"{begun:%Y-%m-%dT%H:%M:%SZ}",
            "seconds": round(clock() - begun_s, 1),
            "stand_in": asked.is_stand_in,
            "facts": asdict(place),
            "environment": here.as_json(),
        }

    for name, check in CHECKS.items():
        if only and not {name, name.partition(" ")[0]} & set(only):
            continue
        if done:
            keep(document(UNFINISHED))
        if clock() - begun_s > budget_s:
            done.append(CheckResult(name, UNAVAILABLE, None, "", f"not tried: {budget_s:g} s were over"))
            continue
        say(f"self-test: {name}")
        done.append(guarded(name, check, asked))
    return document(OK)


def guarded(name: str, check: Check, asked: DeviceUnderTest) -> CheckResult:
    """The check's answer under its name; whatever it meets is an answer, too."""
    try:
        return replace(check(asked), check=name)
    except Unavailable as fault:
        return CheckResult(name, UNAVAILABLE, None, "", one_line(str(fault), LONGEST_REASON))
    except Exception as fault:  # noqa: BLE001 - a broken device raises anything; it becomes the check's answer
        return CheckResult(
            name, FAILED, None, "an answer", one_line(f"{type(fault).__name__}: {fault}", LONGEST_REASON)
        )
