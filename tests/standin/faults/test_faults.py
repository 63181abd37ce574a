"""Injected fault, law: a device's fault is a row with its reason, a fresh worker goes on, and `--resume` completes."""

import pytest

from results.store.store import read_run
from tests.standin.device.stand_in import StandIn
from tests.standin.faults.failing_cells import CELLS, KERNEL_NS, LAUNCH

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


def in_order(data):
    return sorted(data.runs, key=lambda run: run.started_at)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_a_row_with_its_reason(failed, fault):
    """Also where the first call after it is a library's, which says of an error of the device that it failed."""
    run = in_order(failed[2])[list(FAULTS).index(fault)]
    status, reason = FAULTS[fault]
    assert run.status == status, run.reason
    assert reason in run.reason


def test_the_sweep_goes_on_with_a_fresh_worker_after_each(failed):
    device, done, data = failed
    assert done.returncode == 1, done.stderr  # some cells failed
    assert len(data.runs) == len(FAULTS) + 1
    assert in_order(data)[-1].status in ("ok", "not_converged")
    assert device.state().contexts == len(FAULTS) + 1


def test_resume_completes_on_a_device_that_is_well_again(failed):
    device, _, data = failed
    well = StandIn(device.libraries, device.folder, {"kernel_ns": KERNEL_NS})
    done = well.sweep(*CELLS, *batches(FAULTS), "--resume", "--retry", "failed")
    assert done.returncode == 0, done.stderr
    assert well.missing() == []
    again = read_run(device.out)
    assert {run.cell_id for run in again.runs} == {run.cell_id for run in data.runs}
    assert {run.status for run in again.runs} <= {"ok", "not_converged"}
    assert sorted(run.attempt for run in again.runs) == [1] + [2] * len(FAULTS)
