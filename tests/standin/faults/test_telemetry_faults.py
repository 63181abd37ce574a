"""NVML on a stand-in device beside a sweep: absent, failing in the middle, without a counter, wrong in its units. Cells
are measured all the same; what is not known is empty, with the reason. Short forms, which CI runs, are in
test_telemetry_truth.py."""

from __future__ import annotations

import pytest

from results.store.store import read_run

pytestmark = [pytest.mark.standin, pytest.mark.slow]

CELL = ("--quick", "--models", "resnet18", "--size", "image_size=32", "--batch-sizes", 4, "--precisions", "fp32")
CELL += ("--methods", "exact", "--counters", "flopledger")
WATT = 300
PLAN = {"kernel_ns": 300_000, "idle_w": WATT, "busy_w": WATT}


def only_run(device):
    done = device.sweep(*CELL)
    assert done.returncode == 0, done.stderr
    data = read_run(device.out)
    (run,) = data.runs
    assert run.status in ("ok", "not_converged")
    return run, data


def test_without_nvml_energy_is_empty_and_said(standin):
    run, data = only_run(standin(**PLAN, nvml=0))
    assert run.energy_j is None
    assert any("telemetry" in warning for warning in run.warnings)
    assert "telemetry" in data.sittings[0].preflight["absent"]


LATER = 20 * 186
"""Some 20 steps (of 186 kernels): a second before the window ends, at least. It has 16 blocks of a step and an untimed
one, 56 ms each, after 3 to 15 steps."""


@pytest.mark.parametrize(
    ("error", "warning"), [(15, "telemetry: DeviceLost: NVML: GPU is lost"), (999, "energy: ")], ids=["lost", "unknown"]
)
def test_nvml_that_fails_in_the_middle_leaves_no_joules(standin, error, warning):
    """To NVML alone: CUDA goes on."""
    run, _ = only_run(standin(**PLAN, fault_in_training=1, later_launch=LATER, later_nvml_error=error))
    assert run.energy_j is None
    assert any(each.startswith(warning) for each in run.warnings), run.warnings
    assert any("do not enclose the window" in each for each in run.warnings), run.warnings


def test_without_a_counter_energy_is_polled_power_times_time(standin):
    run, _ = only_run(standin(**PLAN, energy_counter=0))
    assert run.energy_method == "polled"
    assert run.energy_j == pytest.approx(WATT * (run.window_end_s - run.window_start_s), rel=0.05)


def test_a_counter_in_another_unit_is_doubted(standin):
    """A counter that shows a thousand times the energy, against the same board's power."""
    run, _ = only_run(standin(**PLAN, energy_scale=1000))
    assert any(warning.startswith("energy:") and "counter says" in warning for warning in run.warnings)
