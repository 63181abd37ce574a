"""self_test.json: what is read of it, what it must say, and that the limits are those of the checks that are run."""

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from analysis.devices.precisions import PRECISIONS
from cleaning.facts import self_test as facts_self_test
from cleaning.facts.self_test import LIMITS, NEEDED, SelfTest, faults, parsed
from runners.self_test import CHECKS
from tests.support.made_up.made_up_device import self_test as made_up_device_self_test

H200 = "NVIDIA H200"


def test_limits_are_of_the_checks_that_are_run() -> None:
    rates = {name for name in CHECKS if name.startswith(facts_self_test.RATES)}
    assert set(CHECKS) - rates == set(LIMITS)
    assert rates == {f"{kind} {each}" for kind in ("rate", "convolution") for each in PRECISIONS}
    assert set(NEEDED) <= set(LIMITS)


def test_a_document_is_read_as_it_was_written() -> None:
    test = made_up_device_self_test(H200)
    assert parsed(json.loads(json.dumps(asdict(test)))) == test
    assert list(faults(test)) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda document: [], "expected an object"),
        (lambda document: {**document, "checks": {}}, "list of checks"),
        (lambda document: {**document, "checks": [{"check": "sleep"}]}, "verdict"),
        (lambda document: {**document, "checks": ["sleep"]}, "no self-test"),
        (lambda document: {**document, "device": None}, "a text is none"),
        (lambda document: {name: document[name] for name in ("checks", "device")}, "verdict"),
        (lambda document: _found(document, math.nan), "no finite number"),
        (lambda document: _found(document, "1"), "no finite number"),
    ],
)
def test_what_is_no_self_test_is_said_in_a_line(change: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word) as raised:
        parsed(change(json.loads(json.dumps(asdict(made_up_device_self_test(H200))))))
    assert "\n" not in str(raised.value)


def _found(document: dict[str, Any], value: Any) -> dict[str, Any]:
    return {**document, "checks": [{**document["checks"][0], "found": value}]}


def _with(name: str, **values: Any) -> SelfTest:
    test = made_up_device_self_test(H200)
    return replace(test, checks=tuple(replace(each, **values) if each.check == name else each for each in test.checks))


@pytest.mark.parametrize(
    ("check", "found", "holds"),
    [
        ("sleep", 1.9, True),
        ("sleep", 1.89, False),
        ("count", 1, True),
        ("count", 1.000001, False),
        ("intervals", 6, True),
        ("intervals", 5, False),
        ("rate fp32", 0.05 * 67e12, True),  # NVIDIA H200 datasheet: 67 TFLOP/s
        ("rate fp32", 0.049 * 67e12, False),
        ("rate amp-bf16", 1.021 * 989.5e12, False),
        ("convolution amp-bf16", 1.021 * 989.5e12, False),
        ("convolution tf32", 1.01 * 67e12, False),  # its vector units could do that
        ("flags", 1, False),
    ],
)
def test_a_check_that_is_ok_lies_within_the_programs_limits(check: str, found: float, holds: bool) -> None:
    words = list(faults(_with(check, found=found)))
    assert bool(words) is not holds
    assert all(check in each for each in words)


def test_a_rate_of_a_device_without_a_sheet_is_not_ok() -> None:
    other = replace(made_up_device_self_test(H200), device="NVIDIA H2000")
    assert any("rate fp32" in words for words in faults(other))


def test_what_a_device_cannot_answer_needs_a_reason() -> None:
    unavailable = {"verdict": "unavailable", "found": None, "expected": ""}
    assert list(faults(_with("memory resnet18", reason="no history", **unavailable))) == []
    assert list(faults(_with("memory resnet18", **unavailable))) != []
    assert list(faults(_with("sleep", reason="no kernel sleeps", **unavailable))) != [], "every GPU can"
