"""The adapter of AMD's GPUs over a fake of AMD SMI's Python interface. No GPU, no ROCm."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from analysis.devices.telemetry import EVENT_REASONS, Reading
from measure.device import amdsmi
from measure.device.amdsmi import open_amdsmi
from results.errors import DeviceLost, Unavailable


class AmdSmiFault(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"Error code:\n\t{code} | {({2: 'NOT_SUPPORTED', 31: 'NOT_FOUND'}).get(code, 'FAULT')}")
        self.err_code = code


METRICS = {
    "temperature_hotspot": 61,
    "temperature_edge": "N/A",
    "throttle_status": "N/A",
    "prochot_residency_acc": 5,
    "ppt_residency_acc": 100,
    "socket_thm_residency_acc": 0,
    "vr_thm_residency_acc": 0,
    "hbm_thm_residency_acc": 2,
}


class FakeAmdSmi:
    """The functions of AMD SMI's Python interface for two MI300X; `faults`: function → status code."""

    AmdSmiException = AmdSmiFault
    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    SERIALS = ("0x00A1B2C3D4E5F601", "0x00A1B2C3D4E5F602")
    UUIDS = ("c1ff74a1-0000-1000-80a1-b2c3d4e5f601", "c2ff74a1-0000-1000-80a1-b2c3d4e5f602")

    def __init__(self, faults=(), metrics=None, hip=(1, 0)) -> None:
        self.faults, self.hip = dict(faults), hip
        self.metrics = {**METRICS, **(metrics or {})}
        self.calls: list[str] = []
        self.open = 0

    def _asked(self, name: str):
        self.calls.append(name)
        if name in self.faults:
            raise AmdSmiFault(self.faults[name])

    def __getattribute__(self, name: str):
        found = super().__getattribute__(name)
        if not name.startswith("amdsmi_"):
            return found

        def asked(*arguments):
            self._asked(name)
            return found(*arguments)

        return asked

    def amdsmi_init(self):
        self.open += 1

    def amdsmi_shut_down(self):
        self.open -= 1

    def amdsmi_get_processor_handles(self):
        return [0, 1]

    def amdsmi_get_gpu_enumeration_info(self, handle):
        return {} if self.hip is None else {"hip_id": self.hip[handle], "hip_uuid": f"GPU-{self.SERIALS[handle][2:]}"}

    def amdsmi_get_clock_info(self, handle, kind):
        return {"clk": {"gfx": 2100, "mem": 1300}[kind], "max_clk": {"gfx": 2105, "mem": 1305}[kind]}

    def amdsmi_get_power_info(self, handle):
        return {"current_socket_power": 612, "average_socket_power": "N/A", "power_limit": 750000000}

    def amdsmi_get_energy_count(self, handle):
        return {"energy_accumulator": 2_000_000_000, "counter_resolution": 15.25, "timestamp": 1}

    def amdsmi_get_gpu_vram_usage(self, handle):
        return {"vram_total": 196592, "vram_used": 283}

    def amdsmi_get_gpu_metrics_info(self, handle):
        return dict(self.metrics)

    def amdsmi_get_gpu_asic_info(self, handle):
        return {"market_name": "AMD Instinct MI300X", "asic_serial": self.SERIALS[handle]}

    def amdsmi_get_gpu_device_uuid(self, handle):
        return self.UUIDS[handle]

    def amdsmi_get_gpu_vbios_info(self, handle):
        return {"version": "022.040.003.041.000001"}

    def amdsmi_get_pcie_info(self, handle):
        static = {"max_pcie_width": 16, "max_pcie_speed": 32000, "pcie_interface_version": 5}
        return {"pcie_static": static, "pcie_metric": {"pcie_width": 16, "pcie_speed": 32000}}

    def amdsmi_get_gpu_compute_partition(self, handle):
        return "SPX"

    def amdsmi_get_gpu_ecc_enabled(self, handle):
        return 0x4001

    def amdsmi_get_power_cap_info(self, handle):
        return {"power_cap": 700_000_000, "default_power_cap": 750_000_000}

    def amdsmi_get_gpu_driver_info(self, handle):
        return {"driver_name": "amdgpu", "driver_version": "6.12.12"}

    def amdsmi_get_gpu_process_list(self, handle):
        return [{"pid": 90, "mem": 0, "name": "N/A"}, {"pid": 41, "mem": 1024, "name": "N/A"}]


def opened(fake: FakeAmdSmi, which: int | str = 0, **environ: str):
    return open_amdsmi(which, fake, environ, clock=lambda: 12.5)


def test_a_reading_of_an_amd_gpu_is_in_si_units():
    # 2e9 counts × 15.25 µJ = 30,500 J; 283 MiB = 296,747,008 bytes
    assert opened(FakeAmdSmi()).poll() == Reading(
        time_s=12.5,
        sm_clock_hz=2_100_000_000,
        memory_clock_hz=1_300_000_000,
        power_w=612.0,
        energy_j=pytest.approx(30_500.0),
        temperature_c=61.0,
        event_reasons=None,  # the first poll has none before it
        memory_used_bytes=296_747_008,
    )


def test_what_an_amd_gpu_is_set_to():
    state = opened(FakeAmdSmi()).preflight()
    assert (state["name"], state["driver"]) == ("AMD Instinct MI300X", "6.12.12")
    assert (state["power_limit_w"], state["power_limit_default_w"]) == (700.0, 750.0)
    assert (state["sm_clock_max_hz"], state["memory_clock_max_hz"]) == (2_105_000_000, 1_305_000_000)
    assert (state["mig"], state["ecc"], state["other_processes"]) == (False, True, 2)
    assert (state["pcie_generation_max"], state["pcie_width"], state["pcie_width_max"]) == (5, 16, 16)
    assert set(state["absent"]) == {"pcie_generation", "persistence"}
    assert "c2ff74a1" not in str(state)  # the card's own number stays here
    assert opened(FakeAmdSmi()).processes() == ((41, 1024), (90, None))


def test_a_reason_held_clocks_if_its_residency_rose():
    fake = FakeAmdSmi()
    device = opened(fake)
    assert device.poll().event_reasons is None
    assert device.poll().event_reasons == ()
    fake.metrics |= {"ppt_residency_acc": 101, "prochot_residency_acc": 6, "socket_thm_residency_acc": 1}
    assert device.poll().event_reasons == ("hw_thermal_slowdown", "sw_power_cap")
    fake.metrics |= {"hbm_thm_residency_acc": 3, "vr_thm_residency_acc": 1}
    assert device.poll().event_reasons == ("vr_thermal_slowdown", "memory_thermal_slowdown")
    assert device.poll().event_reasons == ()
    assert set(amdsmi.RESIDENCIES.values()) <= EVENT_REASONS.keys()
    assert "amdsmi_get_violation_status" not in fake.calls  # it would wait 0.1 s in each poll


@pytest.mark.parametrize(("status", "reasons"), [(True, ("unspecified_slowdown",)), (False, ()), ("N/A", None)])
def test_before_mi300_it_is_known_that_clocks_are_held_and_not_why(status, reasons):
    older = {**dict.fromkeys(amdsmi.RESIDENCIES, "N/A"), "throttle_status": status}
    device = opened(FakeAmdSmi(metrics=older))
    assert device.poll().event_reasons == reasons
    assert ("event_reasons" in device.reasons) == (reasons is None)


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("amdsmi_get_clock_info", {"sm_clock_hz", "memory_clock_hz"}),
        ("amdsmi_get_power_info", {"power_w"}),
        ("amdsmi_get_energy_count", {"energy_j"}),
        ("amdsmi_get_gpu_vram_usage", {"memory_used_bytes"}),
        ("amdsmi_get_gpu_metrics_info", {"temperature_c", "event_reasons"}),
    ],
)
def test_each_amd_field_may_be_missing_by_itself(function, fields):
    whole = opened(FakeAmdSmi()).poll()
    fake = FakeAmdSmi({function: 2})  # as in a virtual machine, and in a partition
    device = opened(fake)
    reading = device.poll()
    for name, value in vars(whole).items():
        assert getattr(reading, name) == (None if name in fields else value)
    assert fields <= device.reasons.keys()
    assert "NOT_SUPPORTED" in device.reasons[min(fields)]
    asked = len(fake.calls)
    device.poll()
    assert function not in fake.calls[asked:]  # a lasting absence is asked for once


def test_the_largest_value_of_a_type_is_no_measurement(monkeypatch):
    # AMD's Python part compares power with the largest uint16 alone
    huge = {"current_socket_power": 0xFFFFFFFF, "average_socket_power": 331}
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_power_info", lambda self, handle: huge)
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_gpu_vram_usage", lambda self, handle: {"vram_used": 0xFFFFFFFF})
    reading = opened(FakeAmdSmi()).poll()
    assert (reading.power_w, reading.memory_used_bytes) == (331.0, None)
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_gpu_vram_usage", lambda self, handle: {"vram_used": 0})
    assert opened(FakeAmdSmi()).poll().memory_used_bytes == 0, "nothing in use is an answer"


@pytest.mark.parametrize("code", sorted(amdsmi.FATAL))
def test_a_lost_amd_gpu_is_unavailable_with_its_cause(code):
    device = opened(FakeAmdSmi({"amdsmi_get_power_info": code}))
    with pytest.raises(Unavailable, match="AMD SMI: ") as raised:
        device.poll()
    assert raised.value.__cause__.err_code == code
    assert isinstance(raised.value, DeviceLost) == (code in (34, 54))


@pytest.mark.parametrize(
    ("which", "environ", "card"),
    [
        (0, {}, 1),  # HIP calls the second one 0
        (1, {}, 0),
        (0, {"HIP_VISIBLE_DEVICES": "1"}, 0),
        (0, {"CUDA_VISIBLE_DEVICES": "1"}, 0),
        (0, {"HIP_VISIBLE_DEVICES": "GPU-00a1b2c3d4e5f602"}, 1),
        ("GPU-00a1b2c3d4e5f601", {}, 0),
        ("c2ff74a1-0000-1000-80a1-b2c3d4e5f602", {"HIP_VISIBLE_DEVICES": "0"}, 1),
    ],
)
def test_hips_number_finds_amd_smis_card(which, environ, card):
    assert opened(FakeAmdSmi(), which, **environ)._handle == card


@pytest.mark.parametrize(
    ("which", "hip", "environ", "words"),
    [
        (2, (1, 0), {}, "expected one of 2 HIP devices, got number 2"),
        (1, (1, 0), {"HIP_VISIBLE_DEVICES": "0"}, "expected one of 1 HIP devices"),
        (0, None, {}, "name it by its UUID"),  # before ROCm 6.4
        (0, (1, 0), {"ROCR_VISIBLE_DEVICES": "1"}, "ROCR_VISIBLE_DEVICES"),
        ("GPU-ffff", (1, 0), {}, "expected one device of UUID"),
        ("GPU-00a1b2c3d4e5f6", (1, 0), {}, "found 2"),
    ],
)
def test_an_amd_card_that_cannot_be_told_is_unavailable_and_the_library_given_back(which, hip, environ, words):
    fake = FakeAmdSmi(hip=hip)
    with pytest.raises(Unavailable, match=words):
        opened(fake, which, **environ)
    assert fake.open == 0


def test_no_amdsmi_and_no_driver_are_unavailable(monkeypatch):
    with pytest.raises(Unavailable, match=r"AMD SMI: .*34"):
        opened(FakeAmdSmi({"amdsmi_init": 34}))
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(Unavailable, match="comes with ROCm"):
        open_amdsmi()
    fake = FakeAmdSmi()
    with opened(fake):
        assert fake.open == 1
    assert fake.open == 0
