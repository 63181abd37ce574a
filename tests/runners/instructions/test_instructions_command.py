"""The command shows counts beside executions, and says in one line what is missing."""

import json

import pytest

import measure.instructions
from runners.instructions.command import main


def test_an_unknown_operator_and_a_missing_tool_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["conv2d_3x"])
    assert "nearest conv2d_3x3" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="2"):
        main(["mm_16x16x16"])
    assert "no valgrind on PATH" in capsys.readouterr().err


def test_the_count_comes_from_a_trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """17 × 33 × 31 multiply-adds; the kernel's 31 columns are 32."""
    executed = {"fma": 17 * 33 * 32, "mul": 544, "instructions": 13998}
    monkeypatch.setattr(measure.instructions, "count_instructions", lambda names: dict.fromkeys(names, executed))
    assert main(["mm_17x33x31", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["multiply_adds"], row["verdict"]) == (17 * 33 * 31, "different")
    assert row["reason"] == "padding of vectors: 31 is executed as 32"


def test_what_no_reason_explains_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(measure.instructions, "count_instructions", lambda names: {name: {"fma": 1} for name in names})
    assert main(["mm_16x16x16"]) == 1
    assert "unexplained" in capsys.readouterr().out
