"""A utilization over the ceiling that was timed beside its steps is shown before that over the session's ceiling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.shared import half_width, used_half_width, verdict
from reports.sweep.answer.table import peak_lines
from reports.sweep.figures.utilization import chosen
from runners.report import command
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_evidence import Part, Parts

CELLS = (("fp32", 8, 0), ("fp32", 16, 0))
KERNEL_FLOP = 2 * 1024**3
RATES = (5e12, 4e12)
"""FLOP/s of the kernel beside the blocks of each cell: the machine was slower during the second."""


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here looks at them."""
    monkeypatch.setattr(command, "_pictures", lambda out: {})


def pair(part: Part, rate: float) -> None:
    """A block of ten calls of a kernel directly after each block of steps."""
    call_s = KERNEL_FLOP / rate
    more: dict[str, Any] = {"unit": "fp32", "kernel": "matmul 512x1024x2048", "flop": 10 * KERNEL_FLOP}
    beside = [
        replace(
            block, part="ceiling", steps=10, start_s=block.start_s + block.wall_s, wall_s=10 * call_s,
            device_s=10 * call_s, sync_wait_s=call_s, **more,
        )
        for block in part.samples
    ]  # fmt: skip
    part.run = replace(part.run, paired_ceiling=True)
    part.samples = [each for both in zip(part.samples, beside, strict=True) for each in both]


def paired(only_first: bool = False) -> Parts:
    """Two cells on a device without a sheet, so that a measured ceiling is the headline."""
    parts = made_up_evidence.parts(CELLS, device_name="NVIDIA H2000")
    for key, rate in list(zip(CELLS, RATES, strict=True))[: 1 if only_first else None]:
        pair(parts.cells[key], rate)
    return parts


def test_the_ceiling_beside_the_steps_is_the_headline(tmp_path: Path) -> None:
    found = command.rebuild(made_up_evidence.write(tmp_path / "run", made=paired()))
    for view, rate in zip(found.views, RATES, strict=True):
        row, other = view.headline, view.fraction("exact", "ceiling")
        assert row is not None
        assert other is not None, "the session's ceiling stays beside it"
        assert row.denominator == "paired_ceiling"
        step_s = made_up_evidence.step_s("fp32", view.run.batch_size)
        assert row.utilization_ratio == pytest.approx((row.model_flop or 0) / step_s / rate, rel=1e-3)
        assert "of the ceiling" not in verdict(view), "which would be another measured ceiling than that of the number"
    table = pd.read_csv(tmp_path / "run" / "headline.csv")
    assert list(table["denominator"]) == ["paired_ceiling"] * 2


def test_the_kernel_is_named_once_with_the_rates_it_had(tmp_path: Path) -> None:
    found = command.rebuild(made_up_evidence.write(tmp_path / "run", made=paired()))
    (line,) = peak_lines(found.views)
    assert line.startswith("paired: the ceiling timed beside its steps, 4.00 to 5.00 TFLOP/s (fp32 matmul 512x")


def test_cells_without_one_stay_in_the_figure(tmp_path: Path) -> None:
    command.rebuild(made_up_evidence.write(tmp_path / "run", made=paired(only_first=True)))
    rows = pd.read_csv(tmp_path / "run" / "utilization.csv")
    assert set(rows.dropna(subset=["utilization_ratio"])["denominator"]) == {"paired_ceiling", "ceiling"}
    points = chosen(pd.read_csv(tmp_path / "run" / "utilization.csv").assign(variant="", device_name=""))
    assert set(points["batch_size"]) == {8, 16}, "each divided by what all of them have"
    assert set(points["denominator"]) == {"ceiling"}


def test_the_width_is_the_ratios_own(tmp_path: Path) -> None:
    """Every second pair twice as slow in both halves: the step time scatters, the ratio does not."""
    parts = paired()
    for part in parts.cells.values():
        part.samples = [
            replace(block, **{name: 2 * getattr(block, name) for name in ("wall_s", "device_s")})
            if place // 2 % 2
            else block
            for place, block in enumerate(part.samples)
        ]
    found = command.rebuild(made_up_evidence.write(tmp_path / "run", made=parts))
    for view in found.views:
        assert view.step is not None
        of_time, of_ratio = half_width(view.step), used_half_width(view)
        assert of_time is not None
        assert of_ratio is not None
        assert of_time > 0.1
        assert of_ratio < 0.01
