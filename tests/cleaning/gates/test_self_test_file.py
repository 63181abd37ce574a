"""Injected fault, law: self_test.json is read as it was written; what is no self-test is refused in one line."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from cleaning.gates.evidence import NEEDED, SELF_TEST_CHECKS, SelfTest, parsed, self_test_faults
from runners.self_test import CHECKS
from tests.support.made_up.made_up_device import self_test as made_up_device_self_test

H200 = "NVIDIA H200"


def test_names_are_of_the_checks_that_are_run() -> None:
    assert set(CHECKS) == set(SELF_TEST_CHECKS)
    assert set(NEEDED) <= set(CHECKS)


def test_a_document_is_read_as_it_was_written() -> None:
    test = made_up_device_self_test(H200)
    assert parsed(json.loads(json.dumps(asdict(test)))) == test
    assert list(self_test_faults(test)) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda document: [], "expected an object"),
        (lambda document: {**document, "checks": {}}, "list of checks"),
        (lambda document: {**document, "checks": [{"check": "sleep"}]}, "verdict"),
        (lambda document: {**document, "checks": ["sleep"]}, "no self-test"),
        (lambda document: {**document, "device": None}, "expected texts for device"),
        (lambda document: {name: document[name] for name in ("checks", "device")}, "verdict"),
    ],
)
def test_what_is_no_self_test_is_said_in_a_line(change: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word) as raised:
        parsed(change(json.loads(json.dumps(asdict(made_up_device_self_test(H200))))))
    assert "\n" not in str(raised.value)


def _with(name: str, **values: Any) -> SelfTest:
    test = made_up_device_self_test(H200)
    return replace(test, checks=tuple(replace(each, **values) if each.check == name else each for each in test.checks))


def test_a_check_that_failed_or_that_every_gpu_can_answer_is_a_fault() -> None:
    unavailable = {"verdict": "unavailable", "found": None, "expected": "", "reason": "there is none"}
    assert list(self_test_faults(_with("memory resnet18", **unavailable))) == []
    assert list(self_test_faults(_with("sleep", **unavailable))) == ["sleep is unavailable"]
    assert list(self_test_faults(_with("rate fp32", verdict="failed"))) == ["rate fp32 failed"]
    assert list(self_test_faults(replace(_with("sleep"), verdict="unfinished"))) == ["its verdict is 'unfinished'"]
    assert list(self_test_faults(_with("sleep", check="other"))) == ["it lacks sleep"]
