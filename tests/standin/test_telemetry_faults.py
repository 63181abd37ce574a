"""NVML on a stand-in device: absent, failing in the middle, without a counter, wrong in its units. Cells are measured
all the same; what is not known is empty, with the reason."""

from __future__ import annotations

import pytest

from results.store.store import read_run

pytestmark = [pytest.mark.standin, pytest.mark.slow]

CELL = ("--quick", "--models", "resnet18", "--image-size", 32, "--batch-sizes", 4, "--precisions", "fp32")
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


def test_nvml_that_fails_in_the_middle_leaves_no_wrong_joules(standin):
    """15 is GPU_IS_LOST, to NVML alone: CUDA goes on. After 30 readings, which is some 3 s of them."""
    run, _ = only_run(standin(**PLAN, nvml_fails_after=30, nvml_error=15))
    if run.energy_j is not None:
        assert run.energy_j == pytest.approx(WATT * (run.window_end_s - run.window_start_s), rel=0.05)
    else:
        assert any("lost" in warning or "no reading" in warning for warning in run.warnings)


def test_without_a_counter_energy_is_polled_power_times_time(standin):
    run, _ = only_run(standin(**PLAN, energy_counter=0))
    assert run.energy_method == "polled"
    assert run.energy_j == pytest.approx(WATT * (run.window_end_s - run.window_start_s), rel=0.05)


def test_a_counter_in_another_unit_is_doubted(standin):
    """A counter that shows a thousand times the energy, against the same board's power."""
    run, _ = only_run(standin(**PLAN, energy_scale=1000))
    assert any(warning.startswith("energy:") and "counter says" in warning for warning in run.warnings)
