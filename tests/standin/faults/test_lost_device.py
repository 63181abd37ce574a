"""Injected fault, law: a lost device is the cause in a row, no other cell is tried, and `--resume` completes later."""

import pytest

from results.store.store import read_run
from tests.standin.device.stand_in import StandIn
from tests.standin.faults.failing_cells import CELLS, KERNEL_NS, LAUNCH

pytestmark = pytest.mark.standin

LOST = "telemetry: DeviceLost: NVML: GPU is lost"


def test_a_lost_device_ends_the_session_and_resume_completes(standin):
    """Every process finds it lost: its row has the cause, the next cell is not tried, until the device is back."""
    device = standin(kernel_ns=KERNEL_NS, fault_in_training=1, fault_launch=LAUNCH, lost_in=1)
    done = device.sweep(*CELLS, "--batch-sizes", "2,3")
    assert done.returncode == 1, done.stderr
    assert f"the device is lost ({LOST})): 1 cell not started; --resume goes on" in done.stderr
    (lost,) = read_run(device.out).runs
    assert lost.status == "device_error", lost.reason
    assert LOST in lost.warnings

    (device.folder / "state").unlink()  # where the loss is kept
    well = StandIn(device.libraries, device.folder, {"kernel_ns": KERNEL_NS})
    done = well.sweep(*CELLS, "--batch-sizes", "2,3", "--resume", "--retry", "failed")
    assert done.returncode == 0, done.stderr
    runs = {run.batch_size: run for run in read_run(device.out).runs}
    assert {size: run.attempt for size, run in runs.items()} == {lost.batch_size: 2, 5 - lost.batch_size: 1}
    assert {run.status for run in runs.values()} <= {"ok", "not_converged"}
