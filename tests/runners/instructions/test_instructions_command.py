"""The command shows counts beside executions, and says in one line what is missing."""

import json
from pathlib import Path

import pytest

import measure.instructions
from runners.instructions.command import main


def test_an_unknown_operator_and_a_missing_tool_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["conv2d_3x"])
    assert "nearest conv2d_3x3" in capsys.readouterr().err
    monkeypatch.setattr("measure.instructions.callgrind.check_decoder", lambda: None)
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


def test_reasons_of_the_table_are_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    executed = {"exp": {"fma": 7_000}, "mm_5x7x9": {"fma": 560}}
    monkeypatch.setattr(measure.instructions, "count_instructions", lambda _: executed)
    assert main([*executed]) == 0
    assert "2 operators: 2 different. No count checks 1 of the reasons, which are a table's." in capsys.readouterr().out


def test_what_no_reason_explains_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(measure.instructions, "count_instructions", lambda names: {name: {"fma": 1} for name in names})
    assert main(["mm_16x16x16"]) == 1
    assert "unexplained" in capsys.readouterr().out


def test_a_missing_decoder_is_told_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("valgrind or a compiler ran"))
    with pytest.raises(SystemExit, match="2"):
        main(["mm_16x16x16"])
    assert "pip install -r requirements-instructions.txt" in capsys.readouterr().err


def test_a_processors_own_counters_are_a_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """16³ multiply-adds are 8,192 FLOP; which kinds they were is left empty."""
    monkeypatch.setattr(measure.instructions, "flop_counters", lambda: None)
    monkeypatch.setattr(measure.instructions, "count_flop", lambda names, _: {name: {"flop": 8192} for name in names})
    assert main(["mm_16x16x16", "--by", "perf", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["fma"], row["mul"], row["executed_flop"], row["verdict"]) == ("", "", 8192, "equal")


def test_the_backward_pass_of_a_product_has_a_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """5 × 7 by 7 × 9: the gradients of both factors are products of as many multiply-adds each."""
    executed = {"fma": 2 * 5 * 7 * 9}
    monkeypatch.setattr(measure.instructions, "count_instructions", lambda names: dict.fromkeys(names, executed))
    assert main(["mm_5x7x9.backward", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["multiply_adds"], row["verdict"]) == (2 * 5 * 7 * 9, "equal")


def test_the_gradients_of_a_product_are_explained_one_by_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """17 × 31 by 31 × 33, whose 33 columns are 40, and 33 × 17 by 17 × 31, whose 31 are 32."""
    executed = {"fma": 17 * 31 * 40 + 33 * 17 * 32}
    monkeypatch.setattr(measure.instructions, "count_instructions", lambda names: dict.fromkeys(names, executed))
    assert main(["mm_17x33x31.backward", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["multiply_adds"], row["verdict"]) == (2 * 17 * 33 * 31, "different")
    assert row["reason"] == "padding of vectors: 31 is executed as 32, 33 is executed as 40"


def test_the_calls_of_a_models_step_are_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every call runs what its definition says: the products are equal."""
    from analysis.operators import total
    from runners.instructions import models

    operations = models.operations_of("squeezenet1_1")
    calls = [(each.name, {"fma": total([each]).model_flop // 2}) for each in operations]
    monkeypatch.setattr(measure.instructions, "count_calls", lambda name, maker: calls)
    main(["squeezenet1_1", "--format", "json"])
    rows = {row["operator"]: row for row in json.loads(capsys.readouterr().out)}
    forward, backward = rows["aten.convolution"], rows["aten.convolution_backward"]
    assert [forward["verdict"], backward["verdict"]] == ["equal", "equal"]
    # gradients of both factors, but for the first convolution's image
    first = next(call for name, call in calls if name == "aten.convolution")
    assert backward["multiply_adds"] == 2 * forward["multiply_adds"] - first["fma"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["alexnet", "--by", "perf"], "expected operators, got the model alexnet"),
        (["alexnet", "mm_16x16x16"], "expected one model by itself, or operators, got alexnet among 2 names"),
        (["mm_16x16x16", "--by", "perf"], "no performance counters"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    asked: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = measure.instructions.flop_counters
    monkeypatch.setattr(measure.instructions, "flop_counters", lambda: real(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        main(asked)
    assert said in capsys.readouterr().err
