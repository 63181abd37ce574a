"""What a suite beside a neighbour is said to be against an idle run: made-up cells, ratios by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.paired import suite
from benchmarks.paired.suite import summary


def cell(model: str, step_s: float, used: float | None, status: str = "ok", repeat: int = 0) -> dict[str, object]:
    return {
        "model": model, "batch_size": 4, "precision": "fp32", "layout": "channels_first", "repeat": repeat,
        "status": status, "duration_s": 30.0, "step_s": step_s, "used": used, "least_s": step_s / 2, "most_s": step_s,
    }  # fmt: skip


IDLE = pd.DataFrame([cell("a", 0.1, 0.5), cell("b", 0.2, 0.4), cell("c", 0.3, 0.6), cell("a", 9.0, 9.0, repeat=1)])


def test_cells_are_compared_with_the_first_of_the_idle_run() -> None:
    """Steps 2, 1.5 and 3 times as long, half of which are waits; utilization 0.49 ÷ 0.5 = 0.98, 0.42 ÷ 0.4 = 1.05 and
    0.3 ÷ 0.6 = 0.5. Without waits c still takes 1.5 times the idle step."""
    beside = pd.DataFrame([cell("a", 0.2, 0.49), cell("b", 0.3, 0.4199), cell("c", 0.9, 0.3, status="not_converged")])
    assert summary(beside, IDLE) == [
        "3 cells in 1.5 minutes: 2 converged, the longest took 30 s.",
        "Beside the neighbour a step took 1.50 to 3.00 times as long (median 2.00), 3 cells.",
        "Paired utilization ÷ idle: median 0.980, 0.500 to 1.050; 2 of 3 within 5 %; farthest c 4 fp32.",
        "The idle step is between the step and the step without its waits in 2 of 3 cells; without its waits a step "
        "took 0.75 to 1.50 of the idle one (median 1.00).",
    ]


def test_a_cell_without_a_utilization_or_without_an_idle_one_is_not_compared() -> None:
    beside = pd.DataFrame([cell("a", 0.1, None, status="failed"), cell("d", 0.2, 0.5)])
    (counted, said) = summary(beside, IDLE)
    assert (counted[:7], said) == ("2 cells", "No cell of the idle run is the same.")
    assert summary(beside, None) == [counted]


@pytest.mark.parametrize("more", [[], ["--retry", "unconverged"]])
def test_a_second_try_of_wide_cells_is_an_option_of_the_sweep(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[float, bool, Path, list[str]]] = []
    monkeypatch.setattr(suite, "measure", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(suite, "cells", lambda run: pd.DataFrame([cell("a", 0.1, 0.5)]))
    monkeypatch.setattr("sys.argv", ["suite", "--run", str(tmp_path), "--minutes", "2", *more])
    assert suite.main() == 0
    ((load, burst, run, words),) = asked
    assert (load, burst, run, words[-2 - len(more) :]) == (0.5, False, tmp_path, ["--time-budget", "120.0", *more])
    assert "1 converged" in capsys.readouterr().out
