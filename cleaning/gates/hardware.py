"""Gates of the hardware: that there is any, and that it was tested with known work before it is believed."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.devices import is_stand_in
from cleaning.facts import SELF_TEST_FILE, SelfTest
from cleaning.facts.self_test import faults
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import RUN, Finding
from results.records import Sitting

SHOWN = 3
"""Faults of a self-test that are named."""


def hardware(evidence: Evidence) -> Iterator[Finding]:
    """Each session's device: none that stands in for another, by its name, its own word or its ceilings' name."""
    for sitting in evidence.data.sittings:
        names = {sitting.device_name, str(sitting.environment.get("name") or "")}
        names |= {row.device_name for row in evidence.data.ceilings if row.sitting == sitting.sitting}
        marked = sorted(filter(is_stand_in, names)) or (["stand_in"] if sitting.environment.get("stand_in") else [])
        words = f"{sitting.sitting}: measured on a stand-in, which is no hardware ({', '.join(marked)})"
        yield Finding(RUN, not marked, words if marked else "")


def self_test(evidence: Evidence) -> Iterator[Finding]:
    """The run's self-test: passed, with every check that a GPU can answer, on the device and by the software of it."""
    used = {run.sitting for run in evidence.data.runs}
    homes = [each for each in evidence.data.sittings if each.sitting in used and each.device.startswith("cuda")]
    test = evidence.self_test
    if not homes or test is None:
        return
    words = [test] if isinstance(test, str) else [*faults(test), *_elsewhere(test, homes)]
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    yield Finding(RUN, not words, f"{SELF_TEST_FILE}: {'; '.join(words[:SHOWN])}{more}" if words else "")


def _elsewhere(test: SelfTest, homes: list[Sitting]) -> Iterator[str]:
    """Where the test was made on another device, or by another driver, torch or version of this program."""
    for name, told, own in (
        ("device", test.device, [each.device_name for each in homes]),
        ("driver", test.driver, [each.driver for each in homes]),
        ("torch", test.torch_version, [each.torch_version for each in homes]),
        ("harness_version", test.harness_version, [each.environment.get("harness_version") for each in homes]),
    ):
        if told not in own:
            yield f"of {name} {told!r}, the run of {own[0]!r}"
