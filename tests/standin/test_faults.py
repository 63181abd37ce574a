"""Each fault is a row with its reason, the sweep goes on with a fresh worker, --resume completes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from results.store.store import read_run
from tests.standin.stand_in import StandIn

pytestmark = pytest.mark.standin

FAULTS = {
    "illegal_address_in": ("device_error", "an illegal memory access was encountered"),
    "ecc_error_in": ("device_error", ""),
    "kill_in": ("crashed", "the worker died of SIGKILL"),
    "hang_in": ("timeout", "killed at its limit of 15 s"),
}
MORE_FAULTS = {
    "launch_failure_in": ("device_error", ""),
    "unknown_error_in": ("device_error", ""),
    "endless_in": ("timeout", "killed at its limit of 15 s"),
}
"""Fault of plan.def → status of the row, and a part of its reason. They meet one context after another, as a failed
worker is replaced by a fresh one. What the first call after the fault is, and so what it says, depends on the step."""

KERNEL_NS = 300_000  # long steps are few: a cell is measured in seconds
LAUNCH = 300  # after the first gradient of a filter: in one of the first steps
CELLS = ("--quick", "--models", "resnet18", "--image-size", 32, "--precisions", "fp32", "--methods", "exact")
CELLS += ("--counters", "flopledger", "--cell-timeout", 15)


def batches(faults):
    """A cell for each fault, and one more, which is measured."""
    return ("--batch-sizes", ",".join(str(2 + number) for number in range(len(faults) + 1)))


def sweep(make, faults):
    """The device, its sweep, in which every worker but the last meets a fault, and the run."""
    contexts = {fault: context for context, fault in enumerate(faults, start=1)}
    device = make(kernel_ns=KERNEL_NS, fault_in_training=1, fault_launch=LAUNCH, **contexts)
    done = device.sweep(*CELLS, *batches(faults))
    return device, done, read_run(device.out)


@pytest.fixture(scope="module")
def failed(standin_of_module):
    return sweep(standin_of_module, FAULTS)


def each_is_a_row(device, done, data, faults):
    assert done.returncode == 1, done.stderr  # some cells failed
    runs = sorted(data.runs, key=lambda run: run.started_at)
    assert len(runs) == len(faults) + 1
    for run, (status, reason) in zip(runs, faults.values(), strict=False):
        assert run.status == status, run.reason
        assert reason in run.reason
        assert run.reason
    assert runs[-1].status in ("ok", "not_converged")
    assert device.state().contexts == len(faults) + 1, "a fresh worker after each fault"


def test_each_fault_is_a_row_and_the_sweep_goes_on(failed):
    each_is_a_row(*failed, FAULTS)


@pytest.mark.slow
def test_other_faults_are_rows_too(standin):
    each_is_a_row(*sweep(standin, MORE_FAULTS), MORE_FAULTS)


def test_resume_completes_on_a_device_that_is_well_again(failed):
    device, _, data = failed
    well = StandIn(device.libraries, device.folder, {"kernel_ns": KERNEL_NS})
    done = well.sweep(*CELLS, *batches(FAULTS), "--resume", "--retry-failed")
    assert done.returncode == 0, done.stderr
    again = read_run(device.out)
    assert {run.cell_id for run in again.runs} == {run.cell_id for run in data.runs}
    assert {run.status for run in again.runs} <= {"ok", "not_converged"}
    assert sorted(run.attempt for run in again.runs) == [1] + [2] * len(FAULTS)
    assert well.missing() == []


def test_a_lost_device_is_a_row_with_its_cause(standin):
    """Every process finds it lost: no cell can be measured any more."""
    device = standin(kernel_ns=KERNEL_NS, fault_in_training=1, fault_launch=LAUNCH, lost_in=1)
    done = device.sweep(*CELLS, "--batch-sizes", "2,3,4")
    assert done.returncode != 0, done.stderr
    runs = read_run(device.out).runs
    assert {run.status for run in runs} == {"device_error"}, "as many rows as were tried, none of them measured"


HERE = Path(__file__).parent
ALLOCATIONS = range(1, 35)
"""A first run of the cell asks for device memory 34 times: see the state of a device that refuses none."""


def refused_from(device, allocations):
    """{number of the allocation: (status, reason)} of a cell, device memory being refused from there on."""
    for number in allocations:
        (device.folder / f"{number}.plan").write_text(f"kernel_ns {KERNEL_NS}\nfail_allocation {number}\n")
    done = device.run(sys.executable, str(HERE / "cell_out_of_memory.py"), str(device.folder))
    assert done.returncode == 0, done.stderr
    return {int(number): outcome for number, outcome in json.loads(done.stdout).items()}


def test_memory_that_runs_out_is_a_row_that_says_so(standin):
    """In the model, in a convolution whose workspaces do not fit any more, and in the optimizer; then not at all."""
    outcomes = refused_from(standin(), (1, 9, 20, 1000))
    assert [status for status, _ in outcomes.values()] == ["out_of_memory"] * 3 + ["ok"]
    assert "no workspace fitted" in outcomes[9][1]


@pytest.mark.slow
def test_each_allocation_of_a_step_may_be_the_one_that_fails(standin):
    outcomes = refused_from(standin(), ALLOCATIONS)
    assert {status for status, _ in outcomes.values()} == {"out_of_memory"}
    assert all(reason for _, reason in outcomes.values())
