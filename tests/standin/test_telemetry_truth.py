"""Known answer, injected fault: telemetry of a stand-in's NVML has joules of power × time; each fault is reported."""

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.standin

HERE = Path(__file__).parent
WATT = 300


def watched(device, window_s=1.2):
    done = device.run(sys.executable, str(HERE / "programs" / "watch_on_device.py"), str(window_s))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_energy_is_power_times_time(standin):
    found = watched(standin(idle_w=WATT))
    assert found["energy"] == {
        "energy_j": pytest.approx(WATT * found["window_s"], rel=0.02),
        "energy_method": "counter",
    }
    assert {reading["power_w"] for reading in found["readings"]} == {WATT}


def test_the_second_device_has_its_own_processes_and_number(standin, monkeypatch):
    """CUDA's first device is NVML's second where CUDA_VISIBLE_DEVICES says so; there are no more than two."""
    device = standin(devices=2)
    hashes = []
    for visible in ("0", "1", "2"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = watched(device)
        hashes.append(found["preflight"].get("uuid_hash"))
    assert None not in hashes[:2]
    assert hashes[0] != hashes[1]
    assert found["reason"] == "telemetry: expected one of 0 CUDA devices, got number 0 (CUDA_VISIBLE_DEVICES=2)"


def test_without_a_counter_energy_is_polled_power_times_time(standin):
    found = watched(standin(idle_w=WATT, energy_counter=0))
    assert found["energy"] == {"energy_j": pytest.approx(WATT * found["window_s"], rel=0.02), "energy_method": "polled"}


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["energy_scale", "power_scale"])
@pytest.mark.parametrize("factor", [1000, 0.001])
def test_another_unit_is_doubted(standin, lie, factor):
    """Joules for millijoules or the reverse, by the counter or by power: they contradict each other from 5 s on."""
    found = watched(standin(idle_w=WATT, **{lie: factor}), window_s=5.2)
    (doubt,) = [warning for warning in found["warnings"] if "counter says" in warning]
    assert doubt.startswith("energy: ")


def test_without_nvml_everything_is_empty_and_said(standin):
    found = watched(standin(nvml=0))
    assert found["reason"] == "telemetry: NVML: nvmlInit: Driver Not Loaded"
    assert found["energy"] == {"energy_j": None, "energy_method": ""}
    assert (found["readings"], found["warnings"]) == ([], [found["reason"]])
    assert found["preflight"] == {"absent": {"telemetry": found["reason"]}}


FAILS_AFTER = 6
"""Readings of power: one before the run, and half a second of polls, so that the window has begun and goes on."""

LOST = "telemetry: DeviceLost: NVML: GPU is lost"
FAILURES = {
    15: (LOST, LOST),
    9: ("telemetry: Unavailable: NVML: Driver Not Loaded", ""),
    999: ("energy: ", ""),  # of each field: polling goes on, readings are empty
}
"""nvmlReturn_t → what the first warning says, and why the session ends."""


@pytest.mark.parametrize("error", FAILURES)
def test_nvml_that_fails_in_the_middle_gives_no_joules(standin, error):
    found = watched(standin(idle_w=WATT, nvml_fails_after=FAILS_AFTER, nvml_error=error))
    warning, lost = FAILURES[error]
    assert found["energy"]["energy_j"] is None
    assert found["warnings"][0].startswith(warning)
    assert "energy: readings of the energy counter do not enclose the window" in " ".join(found["warnings"])
    assert found["lost"] == lost
