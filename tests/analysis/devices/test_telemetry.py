"""Definition, law, injected fault: energy and clocks of made-up readings by hand, and NVML with its faults.

The NVML adapter reads a made-up pynvml: no GPU is needed but where a test is marked `gpu`.
"""

import dataclasses
import itertools
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.devices.telemetry import EVENT_REASONS, energy, event_shares, mean_sm_clock_hz
from measure.device import nvml
from measure.device.nvml import decode_event_reasons, open_nvml
from measure.device.telemetry import Sampler
from results.errors import DeviceLost, Unavailable
from results.records.cell import Telemetry

# --- readings ---


def steady(
    seconds: int, power_w: float | None = 500.0, counter: bool = True, start_s: float = 100.0
) -> list[Telemetry]:
    """Ten readings a second of a constant load; the counter had 7000 J."""
    return [
        Telemetry(
            cell_id="",
            attempt=0,
            time_s=start_s + i / 10,
            power_w=power_w,
            energy_j=7000 + 500 * i / 10 if counter else None,
            sm_clock_hz=1_500_000_000,
        )
        for i in range(10 * seconds + 1)
    ]


def test_the_counter_gives_power_times_time():
    # 500 W from 102.03 to 112.07, between readings: 10.04 s
    assert energy(steady(20), 102.03, 112.07) == (pytest.approx(500 * 10.04), "counter", "")


def test_polled_power_is_the_trapezoid():
    # power rises 10 W each second from 0 at 100 s: the integral from 102 to 112 is 5 * (12**2 - 2**2) = 700 J
    readings = [Telemetry(cell_id="", attempt=0, time_s=100 + i / 2, power_w=10 * i / 2) for i in range(60)]
    assert energy(readings, 102.0, 112.0) == (pytest.approx(700), "polled", "no energy counter")


def test_a_short_window_is_flagged_and_kept():
    said = "window of 2.00 s is shorter than 5 s"
    assert energy(steady(20), 102.0, 104.0) == (pytest.approx(1000), "counter", said)


def test_counter_and_power_that_disagree_say_so():
    readings = [dataclasses.replace(r, power_w=250.0) for r in steady(20)]
    said = "counter says 5000 J, polled power 2500 J"
    assert energy(readings, 102.0, 112.0) == (pytest.approx(5000), "counter", said)


def test_nothing_known_is_none_and_never_zero():
    assert energy(steady(20, None, False), 102.0, 112.0) == (None, "", "no energy counter; no power reading")
    assert energy([], 102.0, 112.0).joules is None
    assert mean_sm_clock_hz([], 102.0, 112.0) is None
    assert event_shares(steady(20), 102.0, 112.0) is None


def test_readings_must_enclose_the_window():
    assert energy(steady(5), 102.0, 112.0).joules is None
    assert "do not enclose" in energy(steady(5), 102.0, 112.0).reason
    assert mean_sm_clock_hz(steady(5), 102.0, 112.0) is None
    # but for half a second at either end, where the mean rate goes on
    assert energy(steady(10), 99.7, 110.3)[:2] == (pytest.approx(500 * 10.6), "counter")
    assert energy(steady(10, counter=False), 99.7, 110.3).joules == pytest.approx(500 * 10.6)
    assert energy(steady(10), 99.4, 110.0).joules is None


def test_a_long_gap_in_polled_power_is_not_bridged():
    readings = [r for r in steady(20, counter=False) if not 104.05 < r.time_s < 105.95]
    assert energy(readings, 102.0, 112.0) == (None, "", "no energy counter; power is missing for 2.0 s")
    # the counter does not mind
    assert energy([r for r in steady(20) if not 104.05 < r.time_s < 105.95], 102.0, 112.0).joules == pytest.approx(5000)


def test_the_mean_clock_is_weighted_by_time():
    # 1 GHz until 10 s, 2 GHz from 11 s on, a straight line between: over 9 to 13, (1 + 1.5 + 2 * 2) / 4
    hertz = [(t, 10**9 if t <= 10 else 2 * 10**9) for t in range(20)]
    readings = [Telemetry(cell_id="", attempt=0, time_s=float(t), sm_clock_hz=hz) for t, hz in hertz]
    assert mean_sm_clock_hz(readings, 9.0, 13.0) == pytest.approx(6.5e9 / 4)
    assert mean_sm_clock_hz(readings, 13.0, 13.0) is None


@given(st.lists(st.floats(10, 900), min_size=4, max_size=40), st.floats(0.1, 0.9))
def test_energy_adds_up_over_neighbouring_windows(watts, share):
    readings = [Telemetry(cell_id="", attempt=0, time_s=i / 4, power_w=w) for i, w in enumerate(watts)]
    end_s = readings[-1].time_s
    middle_s = share * end_s
    parts = energy(readings, 0.0, middle_s).joules + energy(readings, middle_s, end_s).joules
    assert parts == pytest.approx(energy(readings, 0.0, end_s).joules)
    assert min(watts) * end_s * 0.999 <= parts <= max(watts) * end_s * 1.001


def test_event_reasons_are_nvmls_names():
    # nvml.h: GpuIdle 1, SwPowerCap 4, HwThermalSlowdown 0x40
    assert decode_event_reasons(0) == ()
    assert decode_event_reasons(0x45) == ("gpu_idle", "sw_power_cap", "hw_thermal_slowdown")
    assert decode_event_reasons(0x800) == ("0x800",)
    assert set(nvml.EVENT_REASONS.values()) <= EVENT_REASONS.keys(), "the vocabulary of every vendor"


# --- the adapter ---


class NvmlFault(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(
            {1: "Uninitialized", 3: "Not Supported", 9: "Driver Not Loaded", 10: "Timeout"}.get(value, "Fault")
        )
        self.value = value


class FakeNvml:
    """pynvml with two equal cards. `faults`: function → error code; `missing`: names this version lacks."""

    NVMLError = NvmlFault
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NAMES = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")
    UUIDS = ("GPU-aaaaaaaa-1111-2222-3333-444444444444", "GPU-bbbbbbbb-1111-2222-3333-444444444444")

    ANSWERS = {
        "nvmlDeviceGetClockInfo": lambda kind: {1: 1410, 2: 1215}[kind],
        "nvmlDeviceGetPowerUsage": lambda: 301_500,
        "nvmlDeviceGetTotalEnergyConsumption": lambda: 123_456_789,
        "nvmlDeviceGetTemperatureV": lambda sensor: 45,
        "nvmlDeviceGetTemperature": lambda sensor: 44,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda: 0x4,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda: 0x8,
        "nvmlDeviceGetMemoryInfo": lambda: SimpleNamespace(used=3 * 2**30),
        "nvmlDeviceGetVbiosVersion": lambda: "92.00.45",
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda: 4,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda: 4,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda: 16,
        "nvmlDeviceGetMigMode": lambda: [0, 0],
        "nvmlDeviceGetEccMode": lambda: [1, 1],
        "nvmlDeviceGetPersistenceMode": lambda: 1,
        "nvmlDeviceGetEnforcedPowerLimit": lambda: 400_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda: 400_000,
        "nvmlDeviceGetMaxClockInfo": lambda kind: {1: 1410, 2: 1215}[kind],
    }

    def __init__(self, faults=(), missing=(), answers=(), pids=((77, 5),)) -> None:
        self.faults, self.pids = dict(faults), pids
        self.calls: list[tuple] = []
        self.open = 0
        for name, answer in {**self.ANSWERS, **dict(answers)}.items():
            if name not in missing:
                setattr(self, name, self.function(name, answer))

    def function(self, name, answer):
        def asked(handle, *arguments):
            self.calls.append((name, handle))
            if name in self.faults:
                raise NvmlFault(self.faults[name])
            return answer(*arguments)

        return asked

    def nvmlInit(self):
        if "nvmlInit" in self.faults:
            raise NvmlFault(self.faults["nvmlInit"])
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.NAMES)

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"card{index}"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return f"slice of card1 ({uuid})"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return "card1"

    def nvmlDeviceGetName(self, handle):
        return self.NAMES[int(handle[4])]

    def nvmlDeviceGetUUID(self, handle):
        return self.UUIDS[int(handle[4])].encode()

    def nvmlSystemGetDriverVersion(self):
        return "580.65.06"

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.pids]


def opened(fake: FakeNvml, which: int | str = 0, **environ: str):
    return open_nvml(which, fake, environ, clock=lambda: 12.5)


@pytest.mark.parametrize(("code", "expected"), [(0, 487.25), (3, 301.5)])
def test_power_is_the_instantaneous_one_where_there_is_such_a_field(code, expected):
    fake = FakeNvml()
    fake.NVML_FI_DEV_POWER_INSTANT = 186
    field = SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=487_250))
    fake.nvmlDeviceGetFieldValues = lambda handle, fields: [field] * (fields == [186])
    assert opened(fake).poll().power_w == expected


def test_a_reading_is_in_si_units():
    assert opened(FakeNvml()).poll() == Telemetry(
        cell_id="",
        attempt=0,
        time_s=12.5,
        sm_clock_hz=1_410_000_000,
        memory_clock_hz=1_215_000_000,
        power_w=301.5,
        energy_j=123_456.789,
        temperature_c=45.0,
        event_reasons=("sw_power_cap",),
        memory_used_bytes=3 * 2**30,
    )


@pytest.mark.parametrize(
    ("field", "functions"), [(field, functions) for field, (functions, _, _) in nvml.POLLED.items()]
)
def test_each_field_may_be_unsupported_by_itself(field, functions):
    fake = FakeNvml(dict.fromkeys(functions, 3))
    device = opened(fake)
    reading, whole = device.poll(), opened(FakeNvml()).poll()
    lost = {field}
    if functions == ("nvmlDeviceGetClockInfo",):
        lost = {"sm_clock_hz", "memory_clock_hz"}
    for name in nvml.POLLED:
        assert getattr(reading, name) == (None if name in lost else getattr(whole, name))
    assert device.reasons[field] == f"{functions[-1]}: Not Supported"
    assert set(device.reasons) == lost
    asked = len(fake.calls)
    device.poll()
    again = fake.calls[asked:]
    assert not {name for name, _ in again} & set(functions)  # a lasting absence is asked for once


def test_zeros_are_not_measurements():
    zeros = {
        "nvmlDeviceGetClockInfo": lambda kind: 0,
        "nvmlDeviceGetPowerUsage": lambda: 0,
        "nvmlDeviceGetTotalEnergyConsumption": lambda: 0,
        "nvmlDeviceGetTemperatureV": lambda sensor: 0,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda: 0,
    }
    device = opened(FakeNvml(answers=zeros))
    reading = device.poll()
    assert (reading.sm_clock_hz, reading.power_w, reading.energy_j, reading.temperature_c) == (None,) * 4
    assert reading.event_reasons == ()  # no bit set is an answer
    assert device.reasons["energy_j"] == "nvmlDeviceGetTotalEnergyConsumption reads 0"


@pytest.mark.parametrize("code", sorted(nvml.FATAL))
def test_a_lost_device_is_unavailable_with_its_cause(code):
    device = opened(FakeNvml({"nvmlDeviceGetPowerUsage": code}))
    with pytest.raises(Unavailable, match="NVML: ") as raised:
        device.poll()
    assert raised.value.__cause__.value == code
    # nvml.h: GPU_IS_LOST 15, RESET_REQUIRED 16; the others may be trouble of the library alone
    assert isinstance(raised.value, DeviceLost) == (code in (15, 16))


def test_no_driver_and_no_pynvml_are_unavailable(monkeypatch):
    with pytest.raises(Unavailable, match="nvmlInit: Driver Not Loaded"):
        opened(FakeNvml({"nvmlInit": 9}))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unavailable, match="install nvidia-ml-py"):
        open_nvml(0)


def test_every_function_and_constant_asked_for_exists_in_pynvml():
    pynvml = pytest.importorskip("pynvml")
    for functions, arguments, _ in itertools.chain(nvml.POLLED.values(), nvml.STATE.values()):
        assert hasattr(pynvml, functions[0]) or hasattr(pynvml, functions[-1])
        assert all(hasattr(pynvml, argument) for argument in arguments)
    for name in ("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "nvmlDeviceGetHandleByUUID", "nvmlShutdown"):
        assert hasattr(pynvml, name)


# --- which card ---


def handle(device) -> str:
    return device._whole


@pytest.mark.parametrize(
    ("which", "visible", "card"),
    [
        (0, None, "card0"),
        (1, None, "card1"),
        (0, "1", "card1"),
        (1, "1,0", "card0"),
        (0, "GPU-bbbb", "card1"),  # CUDA takes a unique beginning
        (0, " GPU-bbbbbbbb-1111-2222-3333-444444444444 ", "card1"),
        ("GPU-bbbbbbbb-1111-2222-3333-444444444444", "0", "card1"),
        ("BBBBBBBB-1111-2222-3333-444444444444", None, "card1"),  # as torch writes it
    ],
)
def test_cudas_number_finds_nvmls_card(which, visible, card):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert handle(opened(FakeNvml(), which, **environ)) == card


@pytest.mark.parametrize(
    ("which", "visible"), [(2, None), (0, ""), (1, "0"), (1, "0,-1,1"), (1, "0,7,1"), (0, "GPU-cccc"), ("GPU-", None)]
)
def test_a_card_that_is_not_there_is_unavailable_and_nvml_is_given_back(which, visible):
    fake = FakeNvml()
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with pytest.raises(Unavailable, match="expected one"):
        opened(fake, which, **environ)
    assert fake.open == 0


def test_a_mig_slice_is_polled_as_the_whole_gpu_and_says_so():
    fake = FakeNvml()
    device = opened(fake, 0, CUDA_VISIBLE_DEVICES="MIG-99")
    assert device.poll().energy_j == 123_456.789
    assert set(fake.calls) >= {("nvmlDeviceGetMemoryInfo", "slice of card1 (MIG-99)")}
    assert {h for name, h in fake.calls if name != "nvmlDeviceGetMemoryInfo"} == {"card1"}
    assert "whole GPU" in device.preflight()["absent"]["mig_slice"]


# --- preflight ---


def test_preflight_says_what_the_device_is_set_to():
    state = opened(FakeNvml()).preflight()
    expected = {
        "name": "NVIDIA A100-SXM4-40GB", "driver": "580.65.06", "mig": False, "ecc": True, "persistence": True,
        "power_limit_w": 400.0, "power_limit_default_w": 400.0, "sm_clock_max_hz": 1_410_000_000,
        "pcie_generation": 4, "pcie_width": 16, "temperature_c": 45.0, "other_processes": 1, "absent": {},
    }  # fmt: skip
    assert {name: state[name] for name in expected} == expected
    assert len(state["uuid_hash"]) == 16
    assert "aaaa" not in str(state)  # the card's own number stays here


def test_other_processes_are_told_from_a_baseline_not_from_pids():
    fake = FakeNvml(pids=((1, 5), (1, 7)))
    device = opened(fake)
    baseline = device.processes()
    assert baseline == ((1, 5), (1, 7))
    fake.pids = ((1, 5), (1, 7), (1, 900))  # ours, under the same number as everybody's in this container
    state = device.preflight(baseline)
    assert (state["other_processes"], state["processes_since"]) == (2, 1)
    fake.pids = ()
    assert device.preflight(baseline)["processes_since"] == 0


# --- the sampler ---


class Polled:
    """A device whose n-th poll is n seconds; raises `fault` at `fails_at`."""

    def __init__(self, fails_at: int | None = None, fault: Exception | None = None) -> None:
        self.polls = 0
        self.fault = fault or Unavailable("NVML: GPU is lost")
        self.fails_at = fails_at

    def poll(self) -> Telemetry:
        self.polls += 1
        if self.polls == self.fails_at:
            raise self.fault
        return Telemetry(cell_id="", attempt=0, time_s=float(self.polls))


def sampled(device: Polled) -> Sampler:
    sampler = Sampler(device, 0.25, wait=lambda seconds: device.polls >= 6)
    sampler.start()
    sampler._thread.join(10)
    return sampler


def test_the_sampler_polls_until_told_to_end_and_once_more():
    sampler = sampled(Polled())
    for _ in "once", "again":
        assert [r.time_s for r in sampler.stop()] == [1, 2, 3, 4, 5, 6, 7]
    assert sampler.fault == ""


def test_a_window_comes_with_a_reading_on_either_side():
    sampler = sampled(Polled())
    assert [r.time_s for r in sampler.between(2.5, 4.5)] == [2, 3, 4, 5]
    assert [r.time_s for r in sampler.between(2.0, 4.0)] == [2, 3, 4]
    assert [r.time_s for r in sampler.between(-1.0, 1.5)] == [1, 2]
    assert [r.time_s for r in sampler.between(6.5, 99.0)] == [6, 7]
    assert Sampler(Polled()).between(0.0, 1.0) == []


@pytest.mark.gpu
def test_a_busy_gpu_draws_power_and_counts_energy():
    """Needs a CUDA device and NVML. 6 s of products: counter and polled power within 20 %, clock above idle."""
    import time

    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    device = open_nvml(str(torch.cuda.get_device_properties(0).uuid))
    a = torch.randn(4096, 4096, device="cuda")
    sampler = Sampler(device)
    sampler.start()
    begun_s = time.monotonic()
    while time.monotonic() < begun_s + 6:
        a @ a
        torch.cuda.synchronize()
    ended_s = time.monotonic()
    sampler.stop()
    readings = sampler.between(begun_s, ended_s)
    assert sampler.fault == ""
    assert mean_sm_clock_hz(readings, begun_s, ended_s) > 5e8
    joules, method, reason = energy(readings, begun_s, ended_s)
    if method:
        assert 50 * 6 < joules < 2000 * 6
        assert "counter says" not in reason


def test_a_counter_that_goes_backwards_is_not_believed():
    readings = [
        dataclasses.replace(r, energy_j=r.energy_j if r.time_s < 105 else 3.0 + i) for i, r in enumerate(steady(20))
    ]
    assert energy(readings, 102.0, 112.0) == (pytest.approx(5000), "polled", "the energy counter went backwards")


def test_unequal_cards_need_the_bus_order_or_a_uuid():
    fake = FakeNvml()
    fake.NAMES = ("NVIDIA T4", "NVIDIA A100-SXM4-40GB")
    with pytest.raises(Unavailable, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        opened(fake, 0)
    assert handle(opened(fake, 1, CUDA_DEVICE_ORDER="PCI_BUS_ID")) == "card1"
    assert handle(opened(fake, FakeNvml.UUIDS[1])) == "card1"


def test_the_older_names_are_the_fallback_and_no_reason():
    by_driver = {"nvmlDeviceGetCurrentClocksEventReasons": 13, "nvmlDeviceGetTemperatureV": 13}
    device = opened(FakeNvml(by_driver))
    assert device.poll().event_reasons == ("hw_slowdown",)
    assert device.poll().temperature_c == 44.0
    assert device.reasons == {}
