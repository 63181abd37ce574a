"""Injected fault: a device unfit to measure on (a slice, in use, throttled, slowing down) is named as such in rows.

It is the second of two, so that nothing is taken from the first, and gates refuse its rows.
"""

import csv
import json
import sys

import pytest

from results.store.store import read_run

pytestmark = pytest.mark.standin

REASONS = (
    "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)  # fmt: skip
"""Those of NVML that say that a limit was met; the others (idle, a clock that was asked for) are harmless."""

ALL = 0x1FF
CELL = ("--quick", "--models", "resnet18", "--batch-sizes", 8, "--size", "image_size=64", "--precisions", "fp32")
CELL += ("--methods", "exact", "--device", "cuda:1")
SLICE = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"


@pytest.fixture(scope="module")
def shared(standin_of_module):
    device = standin_of_module(
        name=SLICE, multiprocessors=16, mig=1, devices=2, other_process_mib=1000, event_reasons=ALL,
        kernel_ns=300_000, drift_per_launch=2e-5, power_limit_w=400,
    )  # fmt: skip
    done = device.sweep(*CELL)
    assert done.returncode == 0, done.stderr
    with open(device.out / "utilization.csv", newline="") as file:
        rows = {row["denominator"]: row for row in csv.DictReader(file)}
    return device, read_run(device.out), rows


def test_a_step_that_slows_down_is_no_converged_row(shared):
    _, data, rows = shared
    (run,) = data.runs
    assert run.status == "not_converged"
    assert "with a 95 % interval of ±" in run.reason
    assert rows["ceiling"]["status"] == "not_converged"
    assert "drift: the last third of the blocks took +" in rows["ceiling"]["warnings"]


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_is_named_in_the_row(shared, reason):
    _, _, rows = shared
    assert f"clock_limited: {reason} in 100 % of polls" in rows["ceiling"]["warnings"]


def test_a_slice_has_no_datasheet_and_no_energy_of_its_own(shared):
    _, data, rows = shared
    assert rows["datasheet"]["status"] == "unavailable"
    assert rows["datasheet"]["reason"].startswith(f"no datasheet peak for 'Stand-in of {SLICE}'")
    assert data.sessions[0].preflight["mig"] is True
    assert "energy: of the whole GPU, a slice (MIG) of which was measured" in data.runs[0].warnings


def test_who_was_there_before_is_refused_as_evidence(shared):
    device, data, _ = shared
    assert data.sessions[0].preflight["other_processes"] == 1
    assert not [warning for warning in data.runs[0].warnings if warning.startswith("shared_device")]
    done = device.run(sys.executable, "-m", "runners.report", str(device.out), "--check", "--format", "json")
    assert done.returncode == 1, done.stderr
    verdicts = {gate["gate"]: gate for gate in json.loads(done.stdout)}
    assert verdicts["alone"]["verdict"] == "fail"
    assert "s0: 1 other process on the GPU" in str(verdicts["alone"]["found"])
