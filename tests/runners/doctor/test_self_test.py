"""The self-test on a CPU: its document, its exit codes, and checks that must be able to fail."""

from __future__ import annotations

import json

import pytest

from cleaning.facts.self_test import FILE
from measure.device.environment import environment
from results.errors import Unavailable
from runners.doctor import command, self_test
from runners.doctor.self_test import Asked, Checked
from runners.report.check import self_test_of

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
    about = {"driver", "torch_version", "harness_version", "tested_at"}
    assert (answer["verdict"], set(answer)) == ("ok", {"device", "checks", "verdict"} | about)
    assert answer["checks"] == [
        {"check": "good", "verdict": "ok", "found": 1.0, "expected": "1 within 10%", "reason": ""},
        {"check": "absent", "verdict": "unavailable", "found": None, "expected": "", "reason": "no such thing here"},
    ]
    monkeypatch.setattr(self_test, "CHECKS", {"good": good, "broken": broken})
    assert command.main(["--self-test", "--device", "cpu"]) == 1
    said = capsys.readouterr().out
    assert "illegal memory" in said
    assert "must not be believed" in said


def test_the_document_is_kept_with_a_run(monkeypatch, capsys, tmp_path) -> None:
    good = lambda asked: Checked("", "ok", 1.0, "1")  # noqa: E731
    monkeypatch.setattr(self_test, "CHECKS", {"sleep": good})
    assert command.main(["--self-test", "--device", "cpu", "--format", "json", "--write", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    test = self_test_of(tmp_path)
    assert (test.device, test.checks) == (printed["device"], (Checked("sleep", "ok", 1.0, "1"),))
    facts = environment()
    assert (test.torch_version, test.driver) == (facts["torch"], facts["driver"] or "")
    assert self_test_of(tmp_path / "nowhere") is None
    (tmp_path / FILE).write_text('{"checks": ', encoding="utf-8")
    assert str(self_test_of(tmp_path)).startswith("cannot be read: ")


@pytest.mark.parametrize("words", [["--write", "."], ["--self-test", "--device", "cpu", "--write", "nowhere"]])
def test_a_place_to_write_that_is_none_is_the_callers_mistake(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert "--write: expected" in capsys.readouterr().err


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
