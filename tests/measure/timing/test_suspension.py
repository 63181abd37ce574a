"""Injected fault: blocks in which the process was stopped or the machine slept are kept, unused, measured again."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from measure.timing.blocks import measure_blocks, measure_stretch
from measure.timing.clocks import Clock
from measure.timing.disturbance import SUSPENDED
from measure.timing.stopping import Protocol
from results.errors import Unavailable

ROOT = Path(__file__).parents[3]
QUICK = replace(Protocol.for_device("cpu"), block_s=0.02, min_time_s=0.1, warm_min_s=0.05, warm_block_s=0.02, cap_s=5.0)


class SimulatedClock(Clock):
    """Simulated seconds, so that what a suspension takes is known."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> float:
        return self.now_s


class Stepper:
    """A step of 10 ms; in those of the given numbers the process is stopped for 12 s, as SIGCONT then says."""

    def __init__(self, clock: SimulatedClock, *stopped: int) -> None:
        self.clock, self.stopped, self.calls = clock, stopped, 0

    def __call__(self, mark: object = None) -> None:
        self.calls += 1
        if callable(mark):
            mark("forward")
        self.clock.now_s += 0.010
        if self.calls in self.stopped:
            self.clock.now_s += 12.0
            signal.raise_signal(signal.SIGCONT)
        if callable(mark):
            mark("end")


@pytest.mark.parametrize("stopped", [(3,), (3, 4, 5), (9,), (3, 30, 60)])
def test_a_block_that_was_suspended_is_measured_again(stopped: tuple[int, ...]) -> None:
    clock = SimulatedClock()
    timing = measure_blocks(Stepper(clock, *stopped), clock, replace(QUICK, min_time_s=1.0), step_s=0.010)
    assert timing.status == "ok"
    assert timing.summary.mean == pytest.approx(0.010)
    assert all(block.wall_s / block.steps == pytest.approx(0.010) for block in timing.blocks)
    assert {block.part for block in timing.suspended} == {SUSPENDED}
    assert all(block.wall_s > 12 for block in timing.suspended)
    assert sum(round((block.wall_s - 0.010 * block.steps) / 12) for block in timing.suspended) == len(stopped)


def test_time_that_a_suspension_took_is_in_no_limit() -> None:
    """12 s are more than the cap of 5 s, and the blocks still come to an end by their interval."""
    clock = SimulatedClock()
    timing = measure_blocks(Stepper(clock, 4, 20), clock, replace(QUICK, min_time_s=3.0), step_s=0.010)
    assert (timing.status, timing.reason) == ("ok", "")
    assert sum(block.wall_s for block in timing.blocks) >= 3.0


def test_a_stretch_has_no_time_if_it_was_suspended() -> None:
    clock = SimulatedClock()
    with pytest.raises(Unavailable, match="the process was suspended within its 20 steps"):
        measure_stretch(Stepper(clock, 7), clock, [10, 10], "epoch")


def test_a_process_that_is_stopped_all_the_time_is_named() -> None:
    clock = SimulatedClock()
    with pytest.raises(Unavailable, match="suspended in each of 5 tries of a block of 3 steps"):
        measure_blocks(Stepper(clock, *range(1, 100)), clock, QUICK, step_s=0.010)


PROGRAM = """
import json, time
from dataclasses import replace
from measure.timing.blocks import measure_blocks
from measure.timing.clocks import Clock
from measure.timing.stopping import Protocol
protocol = replace(Protocol.for_device("cpu"), min_time_s=2.0, cap_s=60.0)
calls = []
def step():
    calls.append(time.sleep(0.01))
    if len(calls) == 30:
        print("begun", flush=True)
timing = measure_blocks(step, Clock(), protocol, step_s=0.01)
spans = [[block.wall_s, block.steps] for block in timing.suspended]
print(json.dumps([timing.summary.mean, max(b.wall_s / b.steps for b in timing.blocks), spans]))
"""


def test_a_process_that_is_really_stopped(tmp_path: Path) -> None:
    """Stopped for a second and continued by another process, as by Ctrl-Z and fg."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGCONT)
    mean_s, most_s, spans = json.loads(process.communicate(timeout=120)[0])
    assert len(spans) == 1
    assert spans[0][0] > 1.0
    assert mean_s < 0.01 + 1.0 / spans[0][1]  # less than if the second were in it
    assert most_s < 0.01 + 1.0 / spans[0][1]
