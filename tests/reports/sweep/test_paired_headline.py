"""Definition: a utilization over the ceiling timed beside its steps, its interval, and its place as the headline."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reports.shared.numbers import half_width, percent, used_half_width, verdict
from reports.sweep.table import to_text
from runners import rebuild
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_evidence import Part, Parts

KERNEL_FLOP = 2 * 1024**3
"""FLOP/s of the kernel beside the blocks of each cell: the machine was slower during the second."""


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here looks at them."""
    monkeypatch.setattr(rebuild, "_pictures", lambda out: {})


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


REPEATED = tuple(("fp32", batch, repeat) for batch in (8, 16) for repeat in range(3))


def paired(only_first: bool = False) -> Parts:
    """Two cells on a device without a sheet, so that a measured ceiling is the headline."""
    parts = made_up_evidence.parts(CELLS, device_name="NVIDIA H2000")
    for key, rate in list(zip(CELLS, RATES, strict=True))[: 1 if only_first else None]:
        pair(parts.cells[key], rate)
    return parts


CELLS = (("fp32", 8, 0), ("fp32", 16, 0))


RATES = (5e12, 4e12)


def test_repeats_are_in_the_interval_of_every_cell_that_is_shown(tmp_path: Path) -> None:
    """The kernel is slower by 2 % in each repeat than in the one before; a cell of batch 32 was measured once."""
    cells = (*REPEATED, ("fp32", 32, 0))
    parts = made_up_evidence.parts(cells, device_name="NVIDIA H2000")
    for key in cells:
        pair(parts.cells[key], 5e12 * 0.98 ** key[2])
    found = rebuild.rebuild(made_up_evidence.write(tmp_path / "run", made=parts))
    every = pd.read_csv(tmp_path / "run" / "utilization.csv")
    every = every.query("denominator == 'paired_ceiling' and method == 'exact'").set_index(["batch_size", "repeat"])
    logs = np.log(every["utilization_ratio"].unstack())
    deviation = math.sqrt(logs.var(axis=1, ddof=1).dropna().mean())
    assert deviation == pytest.approx(-math.log(0.98), rel=0.01)
    half = stats.t.ppf(0.975, 4) * deviation  # of intervals of their own that are next to nothing
    for view in found.views:
        row = every.loc[(view.run.batch_size, view.run.repeat)]
        assert math.log(row["windows_high_ratio"] / row["windows_low_ratio"]) / 2 == pytest.approx(half, rel=0.01)
        assert used_half_width(view) == pytest.approx(math.sinh(half), rel=0.01)
    text = to_text(found)
    assert "± covers any window of this run: it has the variation between repeats, 2.0 %" in text
    table = pd.read_csv(tmp_path / "run" / "headline.csv").set_index("batch_size")
    assert dict(table["repeats"]) == {8: 3, 16: 3, 32: 1}
    for batch, row in table.iterrows():  # of the mean of three the half width is 1 ÷ √3 of that
        of_mean = half / math.sqrt(row["repeats"])
        assert row["utilization_ratio"] == pytest.approx(math.exp(logs.loc[batch].mean()))
        assert row["achieved_flop_per_s"] / row["peak_flop_per_s"] == pytest.approx(row["utilization_ratio"])
        interval = math.log(row["utilization_high_ratio"] / row["utilization_low_ratio"])
        assert interval / 2 == pytest.approx(of_mean, rel=0.01)
        (line,) = (line for line in text.splitlines() if line.split()[1:3] == [str(batch), "fp32"])
        assert percent(math.sinh(of_mean)) in line, "a line a cell, with the same ±"


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
    found = rebuild.rebuild(made_up_evidence.write(tmp_path / "run", made=parts))
    for view in found.views:
        assert view.step is not None
        of_time, of_ratio = half_width(view.step), used_half_width(view)
        assert of_time is not None
        assert of_ratio is not None
        assert of_time > 0.1
        assert of_ratio < 0.01


def test_the_ceiling_beside_the_steps_is_the_headline(tmp_path: Path) -> None:
    found = rebuild.rebuild(made_up_evidence.write(tmp_path / "run", made=paired()))
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
