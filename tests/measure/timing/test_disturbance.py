"""What kept a process from its processors: read from made-up files, kept with each block, and said in a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.timing.blocks import BlockTimer, disturbance_warning
from measure.timing.clocks import CpuClock
from measure.timing.disturbance import Disturbance, disturbance
from results.records import Sample


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two threads that waited for 2 and 3 s, 1.25 s of steal, 0.5 s of throttling."""
    for thread, wait_ns in (("11", 2_000_000_000), ("12", 3_000_000_000)):
        (tmp_path / "task" / thread).mkdir(parents=True)
        (tmp_path / "task" / thread / "schedstat").write_text(f"7000000000 {wait_ns} 42\n")
    (tmp_path / "stat").write_text("cpu  22206 25228 9549 69432 956 0 224 125 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
    (tmp_path / "cpu.stat").write_text("nr_periods 5\nnr_throttled 2\nthrottled_usec 500000\n")
    monkeypatch.setattr("measure.timing.disturbance.TASKS", tmp_path / "task")
    monkeypatch.setattr("measure.timing.disturbance.STAT", tmp_path / "stat")
    monkeypatch.setattr("measure.timing.disturbance.CPU_STATS", (tmp_path / "none", tmp_path / "cpu.stat"))
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    return tmp_path


def test_what_the_system_counts(proc: Path) -> None:
    before = disturbance()
    assert (before.run_wait_s, before.steal_s, before.throttled_s) == (5.0, 1.25, 0.5)
    (proc / "task" / "11" / "schedstat").write_text("7000000000 2250000000 43\n")
    (proc / "cpu.stat").write_text("nr_periods 5\nnr_throttled 2\nthrottled_time 750000000\n")  # as version 1 has it
    found = disturbance().since(before)
    assert (found.run_wait_s, found.steal_s, found.throttled_s) == (0.25, 0.0, 0.25)
    assert found.involuntary_switches >= 0


def test_a_thread_that_ended_leaves_the_wait_unknown(proc: Path) -> None:
    before = disturbance()
    (proc / "task" / "12" / "schedstat").unlink()
    (proc / "task" / "12").rmdir()
    assert disturbance().since(before).run_wait_s is None


def test_what_no_system_counts_is_unknown(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.timing.disturbance.TASKS", proc / "nowhere")
    monkeypatch.setattr("measure.timing.disturbance.STAT", proc / "nowhere")
    monkeypatch.setattr("measure.timing.disturbance.CPU_STATS", ())
    found = disturbance()
    assert (found.run_wait_s, found.steal_s, found.throttled_s) == (None, None, None)


def test_each_block_has_what_came_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([Disturbance(1.0, 5, 2.0, None), Disturbance(1.5, 9, 2.5, None)])
    monkeypatch.setattr("measure.timing.blocks.disturbance", lambda: next(readings))
    with BlockTimer(lambda: None, CpuClock()) as timer:
        block = timer.block(3, "measure")
    told = (block.run_wait_s, block.involuntary_switches, block.steal_s, block.throttled_s)
    assert told == (0.5, 4, 0.5, None)


def block(wall_s: float, wait_s: float | None, steps: int = 10) -> Sample:
    return Sample(part="measure", steps=steps, start_s=0.0, wall_s=wall_s, run_wait_s=wait_s)


def test_disturbed_blocks_are_counted_with_both_means() -> None:
    """Two blocks of 10 steps in 0.2 s, 20 ms a step, one of 10 in 0.5 s that waited for 0.2 s: 90 ms ÷ 3 of all."""
    calm, held = block(0.2, 0.009), block(0.5, 0.2)
    assert disturbance_warning([calm, held, calm]) == (
        "disturbed: 1 of 3 blocks waited for a processor: mean of the others 20 ms, of all 30 ms a step"
    )
    assert disturbance_warning([held, held]) == "disturbed: 2 of 2 blocks waited for a processor"
    assert disturbance_warning([calm, calm]) == ""
    assert disturbance_warning([calm, block(0.5, None)]) == ""
