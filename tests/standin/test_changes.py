"""Known answer, injected fault: a stand-in device whose clock falls, and which gets another user, during a cell.

All of it is in the cell's rows: telemetry, the blocks, marks, and a utilization of the clock that has not changed.
"""

import csv
from itertools import pairwise
from statistics import fmean

import pytest

from results.store.store import read_run

pytestmark = pytest.mark.standin

KERNEL_NS = 300_000
KERNELS = 186
"""Of a step of resnet18, as test_sweep_truth counts them; here it only says about when the change comes."""

CHANGED = 30 * 333 + 36 * KERNELS
"""In the window, however busy this machine is: it begins within the first 15 steps (the traced one, and 0.7 s of 56 ms
to warm up) and has 32 at least (16 blocks of a step and an untimed one are a second). Counted are the kernels that
build the model, too, and those of ceilings after the first gradient: some steps' worth, and 30 blocks of 0.1 s of the
kernel that is sustained."""

MHZ, LATER_MHZ = 1980, 1485
HARDWARE = 0x8 | 0x40  # nvmlClocksEventReasonHwSlowdown, …HwThermalSlowdown
CELL = ("--quick", "--models", "resnet18", "--batch-sizes", 8, "--size", "image_size=64", "--precisions", "fp32")
CELL += ("--methods", "exact", "--target-ci", 0.3, "--cudnn-benchmark", "off")  # a search would launch more


@pytest.fixture(scope="module")
def changed(standin_of_module):
    device = standin_of_module(
        kernel_ns=KERNEL_NS, fault_in_training=1, later_launch=CHANGED, later_mhz=LATER_MHZ,
        later_event_reasons=HARDWARE, later_process_mib=700,
    )  # fmt: skip
    done = device.sweep(*CELL)
    assert done.returncode == 0, done.stderr
    return device, read_run(device.out)


def blocks(data):
    """(step time, host time of the end) of each measured block."""
    rows = data.samples[data.samples["part"] == "measure"]
    return list(zip(rows["device_s"] / rows["steps"], rows["start_s"] + rows["wall_s"], strict=True))


def window(data):
    (run,) = data.runs
    return data.telemetry[data.telemetry["time_s"].between(run.window_start_s, run.window_end_s)]


def test_blocks_take_as_much_longer_as_the_clock_fell(changed):
    """Two times, the planted ratio apart, and at most one block with a part of both; never back again."""
    times_s = [time_s for time_s, _ in blocks(changed[1])]
    low, high = min(times_s), max(times_s)
    assert high / low == pytest.approx(MHZ / LATER_MHZ, rel=1e-3)
    assert sum(low * 1.001 < time_s < high * 0.999 for time_s in times_s) <= 1
    assert all(after >= before * 0.999 for before, after in pairwise(times_s))


def test_telemetry_sees_the_clock_fall_when_blocks_become_slow(changed):
    _, data = changed
    polls = window(data)
    assert set(polls["sm_clock_hz"]) == {MHZ * 1e6, LATER_MHZ * 1e6}
    assert polls["sm_clock_hz"].is_monotonic_decreasing
    slow = [end_s for time_s, end_s in blocks(data) if time_s > 1.1 * blocks(data)[0][0]]
    fell_s = polls[polls["sm_clock_hz"] == LATER_MHZ * 1e6]["time_s"].min()
    assert fell_s == pytest.approx(slow[0], abs=0.5)


def test_rows_say_that_the_step_drifted_and_why(changed):
    device, data = changed
    with open(device.out / "utilization.csv", newline="") as file:
        marks = [row["warnings"] for row in csv.DictReader(file) if row["method"] == "exact"]
    times_s, polls = [time_s for time_s, _ in blocks(data)], window(data)
    third = len(times_s) // 3
    slower = fmean(times_s[-third:]) / fmean(times_s[:third]) - 1
    share = (polls["sm_clock_hz"] == LATER_MHZ * 1e6).mean()
    assert 0.1 < slower < MHZ / LATER_MHZ - 1 + 1e-6
    assert marks
    for mark in marks:
        assert f"drift: the last third of the blocks took {100 * slower:+.1f} % against the first" in mark
        for reason in ("hw_slowdown", "hw_thermal_slowdown"):
            assert f"clock_limited: {reason} in {100 * share:.0f} % of polls" in mark


def test_what_the_clock_allows_is_used_all_the_time(changed):
    """FLOP a cycle are the same before and after: utilization of the clock's peak is that of the cycles planted.

    5 %: polls come every 0.1 s of a window of 3 s, in which the clock is averaged.
    """
    device, data = changed
    with open(device.out / "utilization.csv", newline="") as file:
        rows = {row["denominator"]: row for row in csv.DictReader(file) if row["method"] == "exact"}
    flop, step_s = float(rows["clock"]["model_flop"]), min(time_s for time_s, _ in blocks(data))
    at_first = flop / (step_s * 66.9e12)  # at 1980 MHz, which the sheet's figure of fp32 implies
    assert float(rows["clock"]["utilization_ratio"]) == pytest.approx(at_first, rel=0.05)
    assert float(rows["datasheet"]["utilization_ratio"]) < 0.95 * at_first


def test_a_process_that_came_while_it_was_timed_is_a_mark(changed):
    _, data = changed
    (run,) = data.runs
    assert "shared_device: 1 process of others came since the session began" in run.warnings
    assert data.sessions[0].preflight["other_processes"] == 0
