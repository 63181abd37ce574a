"""Each fault is a row with its reason, the sweep goes on with a fresh worker, --resume completes."""

from __future__ import annotations

import pytest

from results.store.store import read_run
from tests.standin.device.stand_in import StandIn, Task

pytestmark = pytest.mark.standin

FAULTS = {
    "illegal_address_in": ("device_error", "an illegal memory access was encountered"),
    "launch_failure_in": ("device_error", "unspecified launch failure"),
    "ecc_error_in": ("device_error", "uncorrectable ECC error encountered"),
    "unknown_error_in": ("device_error", "unknown error"),
    "kill_in": ("crashed", "the worker died of SIGKILL"),
    "hang_in": ("timeout", "killed at its limit of 15 s"),
    "endless_in": ("timeout", "killed at its limit of 15 s"),
}
"""Fault of plan.def → status of the row, and a part of its reason. They meet one context after another, as a failed
worker is replaced by a fresh one."""

LIBRARIES = ("CUDNN_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS")
"""What the row says where the first call after an error of the device is not the runtime's, but a library's."""

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
        said = (reason, *LIBRARIES) if status == "device_error" else (reason,)
        assert any(words in run.reason for words in said), run.reason
    assert runs[-1].status in ("ok", "not_converged")
    assert device.state().contexts == len(faults) + 1, "a fresh worker after each fault"


def test_each_fault_is_a_row_and_the_sweep_goes_on(failed):
    each_is_a_row(*failed, FAULTS)


def test_resume_completes_on_a_device_that_is_well_again(failed):
    device, _, data = failed
    well = StandIn(device.libraries, device.folder, {"kernel_ns": KERNEL_NS})
    done = well.sweep(*CELLS, *batches(FAULTS), "--resume", "--retry-failed")
    assert done.returncode == 0, done.stderr
    assert well.missing() == []
    again = read_run(device.out)
    assert {run.cell_id for run in again.runs} == {run.cell_id for run in data.runs}
    assert {run.status for run in again.runs} <= {"ok", "not_converged"}
    assert sorted(run.attempt for run in again.runs) == [1] + [2] * len(FAULTS)


LOST = "telemetry: DeviceLost: NVML: GPU is lost"


def test_a_lost_device_ends_the_sitting_and_resume_completes(standin):
    """Every process finds it lost: its row has the cause, the next cell is not tried, until the device is back."""
    device = standin(kernel_ns=KERNEL_NS, fault_in_training=1, fault_launch=LAUNCH, lost_in=1)
    done = device.sweep(*CELLS, "--batch-sizes", "2,3")
    assert done.returncode == 1, done.stderr
    assert f"the device is lost ({LOST}): 1 cell not started; --resume goes on when the device is back" in done.stderr
    (lost,) = read_run(device.out).runs
    assert lost.status == "device_error"
    assert LOST in lost.warnings

    (device.folder / "state").unlink()  # where the loss is kept
    well = StandIn(device.libraries, device.folder, {"kernel_ns": KERNEL_NS})
    done = well.sweep(*CELLS, "--batch-sizes", "2,3", "--resume", "--retry-failed")
    assert done.returncode == 0, done.stderr
    runs = {run.batch_size: run for run in read_run(device.out).runs}
    assert {size: run.attempt for size, run in runs.items()} == {lost.batch_size: 2, 5 - lost.batch_size: 1}
    assert {run.status for run in runs.values()} <= {"ok", "not_converged"}


CELL = {"model": "resnet18", "batch_size": 8, "image_size": 64}
ALLOCATIONS = 34
"""A first run of the cell asks so often for device memory: see the state of a device that refuses none."""

ALWAYS, ONCE, TWICE = 0, 1, 2
"""`fail_allocations`: how many in a row are refused."""


def refused(device, cases):
    """{(number of the allocation, how many are refused from there on): (status, reason)} of a cell."""
    plans = {f"{number} {many}": {"fail_allocation": number, "fail_allocations": many} for number, many in cases}
    answers = device.tasks({name: Task("cell", (CELL,), plan) for name, plan in plans.items()})
    return {(number, many): tuple(answers[f"{number} {many}"]) for number, many in cases}


def test_memory_that_runs_out_is_a_row_that_says_so(standin):
    """In the model, in a convolution whose workspaces do not fit any more, and in the optimizer.

    torch frees what it keeps and asks once more: a refusal alone costs nothing, two in a row are out of memory.
    """
    cases = {(1, ALWAYS), (9, ALWAYS), (20, ALWAYS), (1, TWICE), (20, TWICE)}
    outcomes = refused(standin(kernel_ns=KERNEL_NS), [*cases, (20, ONCE)])
    assert {case for case, (status, _) in outcomes.items() if status == "out_of_memory"} == cases
    assert outcomes[20, ONCE][0] == "ok"
    assert "no workspace fitted" in outcomes[9, ALWAYS][1]


@pytest.mark.slow
@pytest.mark.parametrize("many", [ALWAYS, ONCE])
def test_each_allocation_of_a_step_may_be_the_one_that_fails(standin, many):
    outcomes = refused(standin(kernel_ns=KERNEL_NS), [(number, many) for number in range(1, ALLOCATIONS + 1)])
    assert {status for status, _ in outcomes.values()} == {"ok" if many else "out_of_memory"}
    assert all(reason for status, reason in outcomes.values() if status != "ok")
