"""Definition: summaries of a cell's blocks against sums by hand."""

from typing import Any

import pytest

from analysis.utilization.step_times import step_times
from results.records.cell import Run, Sample

RUN = Run(model="m", batch_size=2, device="cuda", cell_id="c", attempt=1, session="s", status="ok")


def sample(index: int, wall_s: float, **more: Any) -> Sample:
    values = {"cell_id": "c", "attempt": 1, "index": index, "part": "measure", "steps": 2, "start_s": 0.0}
    return Sample(**{**values, "wall_s": wall_s, **more})


def test_the_mean_is_total_time_over_total_steps_and_the_rest_is_of_blocks() -> None:
    blocks = [sample(0, 2.0), sample(1, 4.0), sample(2, 12.0, steps=4)]  # 1, 2 and 3 s a step
    (row,) = step_times(RUN, blocks)
    assert row.mean_s == pytest.approx(18 / 8)
    assert (row.median_s, row.p5_s, row.p95_s) == pytest.approx((2.0, 1.1, 2.9))
    assert (row.blocks, row.steps, row.clock, row.phase) == (3, 8, "wall", "")
    assert row.drift_ratio == pytest.approx(3 / 1 - 1)
    assert row.share_ratio is None
    assert row.high_s / row.mean_s == pytest.approx(row.mean_s / row.low_s)  # symmetric on a logarithmic scale
    assert row.low_s > 0


def test_phases_come_in_their_order_with_their_share_and_warm_up_counts_nowhere() -> None:
    phases = {"backward": 6.0, "forward": 3.0, "optimizer": 1.0}
    rows = [sample(i, s, part="phase", phase=name) for i, (name, s) in enumerate(phases.items())]
    found = step_times(RUN, [sample(9, 100.0, part="warmup"), *rows])
    assert [row.phase for row in found] == ["forward", "backward", "optimizer"]
    assert [row.share_ratio for row in found] == pytest.approx([0.3, 0.6, 0.1])
    assert found[0].low_s is None  # a single block


def test_disturbed_blocks_are_in_the_mean_of_all_alone() -> None:
    """1, 2 and 3 s a step of 2 steps each; the last is disturbed."""
    rows = [sample(0, 2.0), sample(1, 4.0), sample(2, 6.0, part="disturbed")]
    (row,) = step_times(RUN, rows)
    assert (row.mean_s, row.blocks, row.disturbed_blocks, row.all_mean_s) == pytest.approx((1.5, 2, 1, 2.0))
    (row,) = step_times(RUN, rows[:2])
    assert (row.disturbed_blocks, row.all_mean_s) == (0, None)
