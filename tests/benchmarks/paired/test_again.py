"""Two runs of the same cells: ratios by hand, placements, cells that one run alone has."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.paired import again

NEAR, FAR = 9e-8, 3.4e-7


def cell(model: str, step_s: float, used: float | None, trip_s: float) -> dict[str, object]:
    return {
        "model": model, "batch_size": 4, "precision": "fp32", "layout": "channels_first", "repeat": 0, "step_s": step_s,
        "used": used, "used_low": used and used - 0.01, "used_high": used and used + 0.01, "trip_s": trip_s,
        "any_low": used and used - 0.06, "any_high": used and used + 0.06,
    }  # fmt: skip


def test_ratios_of_cells_that_both_runs_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """a: 0.52 ÷ 0.5 = 1.04 and 0.11 ÷ 0.1 = 1.1, near in both, intervals touch at 0.51; b: 0.8 and
    1.5, near and then far; nine tenths of the way from log 1.04 to -log 0.8 is log 1.227. c has no utilization, d is in
    the second alone."""
    runs = {
        "A": [cell("a", 0.1, 0.5, NEAR), cell("b", 0.2, 0.5, NEAR), cell("c", 0.1, None, NEAR)],
        "B": [
            cell("a", 0.11, 0.52, NEAR),
            cell("b", 0.3, 0.4, FAR),
            cell("c", 0.1, 0.5, NEAR),
            cell("d", 1.0, 0.5, FAR),
        ],
    }
    monkeypatch.setattr(again, "cells", lambda run: pd.DataFrame(runs[run.name]))
    rows = again.both(Path("A"), Path("B"))
    assert rows["overlap"].tolist() == [True, False]
    assert rows["any_overlap"].tolist() == [True, True]  # b: 0.44 to 0.56 and 0.34 to 0.46
    assert again.table(rows).splitlines()[2:] == [
        "| all | 2 | paired utilization | 0.920 | 14.0 % | 22.7 % | 25.0 % | 1 |",
        "| all | 2 | step time | 1.300 | 28.5 % | 45.4 % | 50.0 % | 0 |",
        "| near in both | 1 | paired utilization | 1.040 | 4.0 % | 4.0 % | 4.0 % | 1 |",
        "| near in both | 1 | step time | 1.100 | 10.0 % | 10.0 % | 10.0 % | 0 |",
        "| near, then far | 1 | paired utilization | 0.800 | 25.0 % | 25.0 % | 25.0 % | 0 |",
        "| near, then far | 1 | step time | 1.500 | 50.0 % | 50.0 % | 50.0 % | 0 |",
    ]  # fmt: skip


def test_repeats_hold_the_mean_of_their_cell_or_do_not() -> None:
    """Repeats 0.49 and 0.51: 2 % from their mean, times √2 as far from the truth, within 6 points and not within 1;
    0.499 and 0.501 are within either, and a cell that was measured once is not asked."""
    rows = [cell(model, 0.1, used, NEAR) | {"repeat": repeat} for model, used, repeat in (
        ("a", 0.49, 0), ("a", 0.51, 1), ("b", 0.499, 0), ("b", 0.501, 1), ("c", 0.9, 0), ("d", None, 0), ("d", None, 1),
    )]  # fmt: skip
    assert again.repeats_held(pd.DataFrame(rows)) == (4, 2, 4)


def test_a_path_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["again", str(tmp_path), str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        again.main()
    assert ended.value.code == 2
    assert "which has no utilization.csv" in capsys.readouterr().err
