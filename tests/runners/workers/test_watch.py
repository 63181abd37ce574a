"""Injected fault: telemetry during a sweep, of a made-up device; what it does not offer has a reason and no value."""

import time

import pytest

from results.errors import DeviceLost, Unavailable
from results.records.cell import Telemetry
from runners.workers import devices as telemetry
from runners.workers.devices import TelemetryWatch, WindowEnergy
from tests.support.fakes.polls import polled, until

WATTS = 400.0


class Card:
    """A device of constant power; `fault` is raised by every question from when it is set."""

    adapter = "card"

    def __init__(self, power_w: float | None = WATTS) -> None:
        self.power_w = power_w
        self.fault: Exception | None = None
        self.said: list[str] = []

    def _asked(self, what: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.said.append(what)

    def poll(self) -> Telemetry:
        self._asked("poll")
        return Telemetry(
            cell_id="", attempt=0, time_s=time.monotonic(), power_w=self.power_w, sm_clock_hz=1_500_000_000
        )

    def processes(self):
        self._asked("processes")
        return ((77, 5),)

    def preflight(self, baseline):
        self._asked("preflight")
        return {"other_processes": len(baseline), "absent": {}}

    def close(self) -> None:
        self.said.append("close")


@pytest.fixture(autouse=True)
def blocks_lack(monkeypatch):
    """Columns of the disturbance record that this host leaves empty, with a reason each; none before a test says so."""
    lacking: dict[str, str] = {}

    def absent(on_cpu: bool) -> dict[str, str]:
        return {**lacking, "core_round_trip_s": "none"} if on_cpu else dict(lacking)

    monkeypatch.setattr(telemetry, "absent", absent)
    return lacking


@pytest.fixture
def card(monkeypatch):
    made = Card()
    monkeypatch.setattr(telemetry, "open_device", lambda device: made)
    return made


def test_a_cpu_has_no_telemetry_and_no_complaint(monkeypatch):
    monkeypatch.setattr("measure.device.nvml.open_nvml", lambda index: pytest.fail("no NVML for a CPU"))
    watch = TelemetryWatch("cpu")
    watch.start()
    assert watch.reason == ""
    assert watch.preflight()["load_1min"] >= 0.0, "the host's state is all there is"
    assert watch.window(0.0, 1.0) == []
    assert watch.energy(0.0, 1.0) == WindowEnergy()
    assert watch.loss(ask=True) == ""
    watch.close()


def test_no_nvml_is_a_reason_in_every_row(monkeypatch):
    def refused(device):
        raise Unavailable("NVML: nvmlInit: Driver Not Loaded")

    monkeypatch.setattr(telemetry, "open_device", refused)
    watch = TelemetryWatch("cuda")
    watch.start()
    reason = "telemetry: NVML: nvmlInit: Driver Not Loaded"
    assert watch.reason == reason
    assert watch.preflight() == {"absent": {"telemetry": reason}}
    assert watch.energy(0.0, 1.0) == WindowEnergy(warnings=(reason,))
    assert watch.window(0.0, 1.0) == []
    watch.close()


def test_a_card_that_is_gone_is_known_before_the_next_poll(card):
    watch = TelemetryWatch("cuda")
    assert watch.loss(ask=True) == "", "nobody polls yet"
    watch.start()
    time.sleep(0.05)
    assert watch.loss(ask=True) == ""
    card.fault = Unavailable("NVML: Uninitialized")
    assert watch.loss(ask=True) == "", "trouble of the library is no lost card"
    watch.close()
    card.fault = None
    watch = TelemetryWatch("cuda")
    watch.start()
    time.sleep(0.05)
    card.fault = DeviceLost("NVML: GPU is lost")
    assert watch.loss(ask=True) == "telemetry: DeviceLost: NVML: GPU is lost"
    until(watch.loss)
    assert watch.loss() == "telemetry: DeviceLost: NVML: GPU is lost", "the sampler met it, too"
    watch.close()


def test_telemetry_that_ends_does_not_end_the_sweep(card):
    watch = TelemetryWatch("cuda")
    watch.start()
    start_s, end_s = polled(watch)
    card.fault = Unavailable("NVML: GPU is lost")
    until(lambda: watch._sampler.fault)
    found = watch.energy(start_s, end_s)
    assert found.warnings[0] == "telemetry: Unavailable: NVML: GPU is lost"
    assert found.energy_j == pytest.approx(WATTS * (end_s - start_s)), "what was seen before stays"
    later = time.monotonic() + 100.0
    found = watch.energy(later, later + 1.0)
    assert found.energy_j is None
    assert found.warnings[0] == "telemetry: Unavailable: NVML: GPU is lost"
    watch.close()


def test_processes_that_came_since_are_a_warning_but_for_the_worker(card, monkeypatch):
    """77 was there before; the first that comes is the worker that measures."""
    watch = TelemetryWatch("cuda")
    watch.preflight()
    watch.start()
    start_s, end_s = polled(watch)
    told = {}
    for pids in ((77,), (77, 1), (77, 1, 2), (1, 2, 3)):
        monkeypatch.setattr(card, "processes", lambda pids=pids: tuple((pid, 5) for pid in pids))
        told[pids] = [mark for mark in watch.energy(start_s, end_s).warnings if mark.startswith("shared_device")]
    watch.close()
    assert told == {
        (77,): [],
        (77, 1): [],
        (77, 1, 2): ["shared_device: 1 process of others came since the session began"],
        (1, 2, 3): ["shared_device: 2 processes of others came since the session began"],
    }
