"""Definition, injected fault: a made-up vendor through the whole path of a sweep; an unknown kind is refused."""

import pkgutil
import sys
import time
import typing
from types import ModuleType

import pytest

from measure.device import telemetry
from measure.device.telemetry import open_device, state_before
from results.errors import Unavailable
from results.records.cell import Telemetry
from runners.workers.devices import TelemetryWatch
from tests.support.fakes.polls import polled

# --- a vendor of ours: one file, one line ---


class Turbine:
    """The one class of a vendor's file: a device of 250 W."""

    adapter = "turbine"

    def __init__(self, which: int | str) -> None:
        self.which = which
        self.begun_s = time.monotonic()
        self.reasons = {"temperature_c": "no sensor"}
        self.open = True

    def facts(self):
        return {"name": "Turbine 9", "power_limit_w": 300.0, "driver": "1.2"}

    def poll(self):
        now_s = time.monotonic()
        return Telemetry(
            cell_id="",
            attempt=0,
            time_s=now_s,
            power_w=250.0,
            energy_j=250.0 * (now_s - self.begun_s),
            event_reasons=(),
        )

    def processes(self):
        return ((7, None), (8, None))

    def preflight(self, baseline=None):
        return state_before(self, baseline)

    def close(self):
        self.open = False

    def __enter__(self):
        return self

    def __exit__(self, *fault):
        self.close()


@pytest.fixture
def vendor(monkeypatch):
    """The file, and its line in the registry."""
    made = ModuleType("made_up_vendor")
    made.opened = []
    made.open_turbine = lambda which: made.opened.append(Turbine(which)) or made.opened[-1]
    monkeypatch.setitem(sys.modules, "made_up_vendor", made)
    line = {"npu": "made_up_vendor:open_turbine"}
    monkeypatch.setattr(telemetry, "ADAPTERS", {**telemetry.ADAPTERS, **line})
    return made


def test_one_line_in_the_registry_gives_a_vendors_samples_to_a_sweep(vendor):
    watch = TelemetryWatch("npu:1")
    state = watch.preflight()
    watch.start()
    start_s, end_s = polled(watch)
    found = watch.energy(start_s, end_s)
    rows = watch.window(start_s, end_s)
    watch.close()
    assert state["name"] == "Turbine 9"
    assert (state["power_limit_w"], state["driver"], state["other_processes"]) == (300.0, "1.2", 2)
    assert (state["temperature_c"], state["absent"]["temperature_c"]) == (None, "no sensor")
    assert (found.energy_j, found.energy_method) == (pytest.approx(250.0 * (end_s - start_s), rel=0.01), "counter")
    assert found.warnings == (f"energy: window of {end_s - start_s:.2f} s is shorter than 5 s",)
    assert {row.power_w for row in rows} == {250.0}
    assert {row.temperature_c for row in rows} == {None}
    (device,) = vendor.opened
    assert (device.which, device.open) == (1, False)


def test_an_adapter_opens_a_device_with_every_member():
    """Of the class that its function gives: methods and constants, and what is set where it is made."""
    protocol = telemetry.DeviceTelemetry
    members = {*protocol.__annotations__, *protocol.__abstractmethods__} | {
        name for name, member in vars(protocol).items() if callable(member) and name[0] != "_"
    }
    assert {"reasons", "processes", "preflight"} <= members
    for name, opener in telemetry.ADAPTERS.items():
        device = typing.get_type_hints(pkgutil.resolve_name(opener))["return"]
        assert members - {*dir(device), *device.__init__.__code__.co_names} == set(), name


def test_a_kind_without_an_adapter_is_refused():
    with pytest.raises(Unavailable, match="'abacus:1': expected cuda"):
        open_device("abacus:1")
