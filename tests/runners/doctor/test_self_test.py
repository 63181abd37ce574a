"""The self-test on a CPU: its document, its exit codes, and checks that must be able to fail."""

from __future__ import annotations

import json

import pytest

from results.errors import Unavailable
from runners.doctor import command, self_test
from runners.doctor.self_test import Asked, Checked

CPU = Asked("cpu", "a processor")


def test_the_document_has_every_check_and_the_verdict_follows(monkeypatch, capsys) -> None:
    def absent(asked: Asked) -> Checked:
        raise Unavailable("no such thing here")

    def broken(asked: Asked) -> Checked:
        raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")

    def good(asked: Asked) -> Checked:
        return self_test._within(1.0, 0.9, 1.1, "1 within 10%", "not said")

    monkeypatch.setattr(self_test, "CHECKS", {"good": good, "absent": absent})
    assert command.main(["--self-test", "--device", "cpu", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], set(answer)) == ("ok", {"device", "checks", "verdict"})
    assert answer["checks"] == [
        {"check": "good", "verdict": "ok", "found": 1.0, "expected": "1 within 10%", "reason": ""},
        {"check": "absent", "verdict": "unavailable", "found": None, "expected": "", "reason": "no such thing here"},
    ]
    monkeypatch.setattr(self_test, "CHECKS", {"good": good, "broken": broken})
    assert command.main(["--self-test", "--device", "cpu"]) == 1
    said = capsys.readouterr().out
    assert "illegal memory" in said
    assert "must not be believed" in said


def test_a_device_that_is_not_there_is_the_callers_mistake(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--self-test", "--device", "tpu"])
    assert ended.value.code == 2
    assert "got tpu" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sleep", "count", "ieee fp32"])
def test_known_work_comes_out_on_a_cpu(name: str) -> None:
    found = self_test._guarded(name, self_test.CHECKS[name], CPU)
    assert found.verdict == "ok", found


@pytest.mark.parametrize("name", ["rate fp32", "events", "energy"])
def test_what_a_cpu_cannot_answer_is_unavailable_with_the_reason(name: str) -> None:
    found = self_test._guarded(name, self_test.CHECKS[name], CPU)
    assert (found.verdict, found.found) == ("unavailable", None)
    assert found.reason


def test_a_ratio_outside_its_bounds_fails_with_the_reason() -> None:
    assert self_test._within(1.2, 0.9, 1.1, "1 within 10%", "too much").verdict == "failed"
    assert self_test._within(1.1, 0.9, 1.1, "1 within 10%", "too much") == Checked("", "ok", 1.1, "1 within 10%")
