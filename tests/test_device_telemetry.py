"""Telemetry of any vendor: the registry, a made-up vendor all the way, a fake AMD SMI, a processor's files."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from analysis.telemetry import EVENT_REASONS, Reading, energy
from measure import amdsmi, cpu_energy, environment, telemetry
from measure.amdsmi import open_amdsmi
from measure.cpu_energy import open_cpu
from measure.telemetry import Adapter, DeviceFacts, open_device, state_before
from results.errors import DeviceLost, Unavailable
from runners import checks
from runners.characterized import _energy_of
from runners.watch import Watch

# --- a vendor of ours: one file, one line ---


class Turbine:
    """The one class of a vendor's file: a device of 250 W."""

    adapter = "turbine"
    polls = True

    def __init__(self, which: int | str) -> None:
        self.which = which
        self.begun_s = time.monotonic()
        self.reasons = {"temperature_c": "no sensor"}
        self.open = True

    def facts(self):
        return DeviceFacts(name="Turbine 9", power_limit_w=300.0, driver="1.2")

    def poll(self):
        now_s = time.monotonic()
        return Reading(time_s=now_s, power_w=250.0, energy_j=250.0 * (now_s - self.begun_s), event_reasons=())

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
    line = {"turbine": Adapter("npu", "made_up_vendor:open_turbine")}
    monkeypatch.setattr(telemetry, "ADAPTERS", {**telemetry.ADAPTERS, **line})
    return made


def test_one_line_in_the_registry_gives_a_vendors_samples_to_a_sweep(vendor):
    watch = Watch("npu:1")
    state = watch.preflight()
    watch.start()
    time.sleep(0.05)
    start_s = time.monotonic()
    time.sleep(0.3)
    end_s = time.monotonic()
    time.sleep(0.15)
    found, warnings = watch.findings(start_s, end_s)
    rows = watch.window(start_s, end_s)
    watch.close()
    assert state["name"] == "Turbine 9"
    assert (state["power_limit_w"], state["driver"], state["other_processes"]) == (300.0, "1.2", 2)
    assert (state["temperature_c"], state["absent"]) == (None, {"temperature_c": "no sensor"})
    assert found == {"energy_j": pytest.approx(250.0 * (end_s - start_s), rel=0.01), "energy_method": "counter"}
    assert warnings == [f"energy: window of {end_s - start_s:.2f} s is shorter than 5 s"]
    assert {row.power_w for row in rows} == {250.0}
    assert {row.temperature_c for row in rows} == {None}
    (device,) = vendor.opened
    assert (device.which, device.open) == (1, False)


def test_doctor_and_characterize_ask_the_same_registry(vendor):
    line, *state = checks.telemetry_checks("npu")
    assert line.fact == "npu by turbine: power_w, energy_j, event_reasons (no sensor)"
    assert line.cost == "stays empty: utilization at the observed clock, temperature"
    assert [each.topic for each in state] == ["other users", "power limit"]
    assert _energy_of("npu:0")() >= 0.0
    assert [device.which for device in vendor.opened] == [0, 0]
    assert _energy_of("abacus")() is None


# --- which adapter ---


@pytest.fixture
def two_vendors(monkeypatch):
    """Two adapters of one kind; each is there or says why not."""
    said = {"red": "red", "blue": "blue"}

    def opener(name):
        def opens(which):
            if said[name].startswith("no "):
                raise Unavailable(said[name])
            return f"{name} {which}"

        return opens

    made = ModuleType("two_vendors")
    made.red, made.blue = opener("red"), opener("blue")
    monkeypatch.setitem(sys.modules, "two_vendors", made)
    registry = {name: Adapter("cuda", f"two_vendors:{name}", name) for name in said}
    monkeypatch.setattr(telemetry, "ADAPTERS", registry)
    return said


@pytest.mark.parametrize(
    ("device", "build", "opened"),
    [
        ("cuda", (), "red 0"),  # a torch for no GPU: the first that is there
        ("cuda:1", ("blue",), "blue 1"),  # ROCm's torch calls AMD's GPUs cuda: the NVIDIA card 1 is another device
        ("cuda:GPU-12ab", ("red", "blue"), "red GPU-12ab"),
    ],
)
def test_the_vendor_that_torch_was_built_for_is_asked(two_vendors, device, build, opened):
    assert open_device(device, lambda field: "1" if field in build else None) == opened


def test_every_reason_is_told_where_nothing_opens(two_vendors):
    two_vendors["red"] = "no red"
    assert open_device("cuda", lambda field: None) == "blue 0"
    two_vendors["blue"] = "no blue"
    with pytest.raises(Unavailable, match=r"^red: no red; blue: no blue$"):
        open_device("cuda", lambda field: None)
    with pytest.raises(Unavailable, match=r"^no blue$"):
        open_device("cuda", lambda field: "1" if field == "blue" else None)
    with pytest.raises(Unavailable, match="'abacus:1': expected one of cuda"):
        open_device("abacus:1")


def test_the_registry_names_functions_that_are_there():
    for name, adapter in telemetry.ADAPTERS.items():
        assert callable(telemetry._load(adapter)), name


@pytest.mark.parametrize(
    ("text", "cuda", "hip"),
    [
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", "12.8", None),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.4'\n", None, "6.4.4"),
    ],
)
def test_the_build_is_read_from_torchs_files(monkeypatch, tmp_path, text, cuda, hip):
    (tmp_path / "version.py").write_text(text)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: spec)
    assert (environment.torch_build("cuda"), environment.torch_build("hip")) == (cuda, hip)
    assert environment.torch_cuda_build() == cuda


# --- AMD SMI ---


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


def test_a_passing_fault_of_amd_smi_is_asked_again():
    fake = FakeAmdSmi({"amdsmi_get_power_info": 30})  # busy
    device = opened(fake)
    assert device.poll().power_w is None
    fake.faults.clear()
    assert device.poll().power_w == 612.0
    assert "power_w" not in device.reasons


def test_zeros_and_na_of_amd_smi_are_not_measurements(monkeypatch):
    fake = FakeAmdSmi(metrics={"temperature_hotspot": "N/A"})
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_clock_info", lambda self, handle, kind: {"clk": 0, "max_clk": "N/A"})
    monkeypatch.setattr(
        FakeAmdSmi, "amdsmi_get_power_info", lambda self, handle: dict.fromkeys(["current_socket_power"], "N/A")
    )
    nothing = {"energy_accumulator": 0, "counter_resolution": 15.3}
    monkeypatch.setattr(FakeAmdSmi, "amdsmi_get_energy_count", lambda self, handle: nothing)
    reading = opened(fake).poll()
    assert (reading.sm_clock_hz, reading.power_w, reading.energy_j, reading.temperature_c) == (None,) * 4


@pytest.mark.parametrize("code", sorted(amdsmi.FATAL))
def test_a_lost_amd_gpu_is_unavailable_with_its_cause(code):
    device = opened(FakeAmdSmi({"amdsmi_get_power_info": code}))
    with pytest.raises(Unavailable, match="AMD SMI: ") as raised:
        device.poll()
    assert raised.value.__cause__.err_code == code
    assert isinstance(raised.value, DeviceLost) == (code in (31, 34, 54))


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


# --- a processor ---

RANGE_UJ = 262_143_328_850  # 2**32 counts of 61.04 µJ
"""Of most processors since Haswell; a round takes 262 s at 1,000 W."""


def put(root: Path, files: dict[str, object]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")


def package(number: int, energy_uj: int, name: str = "", range_uj: int | None = RANGE_UJ) -> dict[str, object]:
    folder = f"sys/class/powercap/intel-rapl:{number}"
    files = {f"{folder}/name": name or f"package-{number}", f"{folder}/energy_uj": energy_uj}
    return files if range_uj is None else {**files, f"{folder}/max_energy_range_uj": range_uj}


def cpu(root: Path, times: list[float] | None = None):
    left = iter(times or [])
    return cpu_energy.Cpu(root, clock=lambda: next(left) if times else 1.0)


def test_the_energy_of_a_processor_is_that_of_its_packages_alone(tmp_path):
    put(tmp_path, {**package(0, 5_000_000), **package(1, 7_500_000), **package(2, 99_000_000, "psys")})
    put(tmp_path, {"sys/class/powercap/intel-rapl:0:0/name": "core"})
    put(tmp_path, {"sys/class/powercap/intel-rapl:0:0/energy_uj": 1_000_000})
    put(tmp_path, {"sys/class/powercap/intel-rapl-mmio:0/name": "package-0"})
    put(tmp_path, {"sys/class/powercap/intel-rapl-mmio:0/energy_uj": 5_000_000})
    device = cpu(tmp_path)
    assert device.polls
    assert device.poll() == Reading(time_s=1.0, energy_j=12.5)  # 5 + 7.5 J: unknown stays empty
    state = device.preflight()
    assert state["energy_source"] == "RAPL package-0 + RAPL package-1"
    assert state["load_1min"] >= 0.0
    assert "energy_j" not in state["absent"]


def test_a_counter_that_goes_round_goes_on(tmp_path):
    # 20 s of 100 W; the counter begins again after 8 s: 2,000 J in all
    raw = [RANGE_UJ - 800_000_000 + 100_000_000 * second for second in range(21)]
    device = None
    readings = []
    times = [float(second) for second in range(21)]
    put(tmp_path, package(0, raw[0]))
    device = cpu(tmp_path, times)
    for energy_uj in raw:
        put(tmp_path, package(0, energy_uj % RANGE_UJ))
        readings.append(device.poll())
    assert energy(readings, 0.0, 20.0)[:2] == (pytest.approx(2000.0), "counter")
    assert readings[-1].energy_j - readings[0].energy_j == pytest.approx(2000.0)


def test_each_package_goes_round_by_itself(tmp_path):
    put(tmp_path, {**package(0, RANGE_UJ - 1_000_000), **package(1, 10_000_000)})
    device = cpu(tmp_path, [0.0, 0.1])
    before = device.poll().energy_j
    put(tmp_path, {**package(0, 2_000_000), **package(1, 14_000_000)})
    assert device.poll().energy_j - before == pytest.approx(1 + 2 + 4)


@pytest.mark.parametrize(("gap_s", "known"), [(262.0, True), (263.0, False)])
def test_a_counter_that_may_have_gone_round_unseen_is_not_believed(tmp_path, gap_s, known):
    put(tmp_path, package(0, 1_000_000))
    device = cpu(tmp_path, [0.0, gap_s, gap_s + 1])
    device.poll()
    put(tmp_path, package(0, 3_000_000))
    assert (device.poll().energy_j is not None) == known
    assert (device.poll().energy_j is not None) == known, "not later either: the sum would be short"
    assert ("may go round" in device.reasons.get("energy_j", "")) != known


def test_a_round_of_unknown_length_is_not_guessed(tmp_path):
    put(tmp_path, package(0, 5_000_000, range_uj=None))
    device = cpu(tmp_path, [0.0, 1.0, 2.0])
    assert device.poll().energy_j == 5.0
    put(tmp_path, package(0, 1_000_000, range_uj=None))
    assert device.poll().energy_j is None
    assert device.poll().energy_j is None
    assert "went round" in device.reasons["energy_j"]


def test_energy_that_only_root_may_read_is_absent_with_the_reason(tmp_path, monkeypatch):
    put(tmp_path, {**package(0, 5_000_000), **package(1, 6_000_000)})
    forbid(monkeypatch, tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj")
    device = cpu(tmp_path)
    assert not device.polls
    assert device.poll().energy_j is None, "one package of two is no total"
    assert "permission denied; since Linux 5.10 only root" in device.reasons["energy_j"]
    assert device.preflight()["energy_source"] is None


def test_energy_that_falls_silent_is_empty_from_then_on(tmp_path, monkeypatch):
    put(tmp_path, package(0, 5_000_000))
    device = cpu(tmp_path)
    assert device.poll().energy_j == 5.0
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    assert device.poll().energy_j is None
    assert "No such file" in device.reasons["energy_j"]


def forbid(monkeypatch, path: Path) -> None:
    """As Linux does since 5.10; a test that is run by root could read a file of mode 0."""
    read = Path.read_text

    def refused(self, *arguments, **more):
        if self == path:
            raise PermissionError(13, "Permission denied")
        return read(self, *arguments, **more)

    monkeypatch.setattr(Path, "read_text", refused)


def test_a_machine_that_says_nothing(tmp_path):
    device = cpu(tmp_path)
    assert not device.polls
    assert device.poll() == Reading(time_s=1.0)
    assert device.processes() is None
    state = device.preflight()
    assert (state["clock_hz"], state["clock_max_hz"], state["energy_source"]) == (None, None, None)
    assert "no package" in state["absent"]["energy_j"]


def test_temperature_and_clocks_of_a_processor(tmp_path):
    put(tmp_path, {"sys/class/hwmon/hwmon0/name": "nvme", "sys/class/hwmon/hwmon0/temp1_input": 30_000})
    put(tmp_path, {"sys/class/hwmon/hwmon1/name": "k10temp", "sys/class/hwmon/hwmon1/temp1_input": 61_250})
    put(tmp_path, {"proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2000.000\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.500\n"})
    assert cpu(tmp_path).poll().temperature_c == 61.25
    assert cpu_energy.clock_hz(tmp_path) == 2_500_250_000
    for core, khz in ((0, 1_200_000), (1, 3_400_000)):
        put(tmp_path, {f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq": khz})
        put(tmp_path, {f"sys/devices/system/cpu/cpu{core}/cpufreq/cpuinfo_max_freq": 3_500_000 + core})
    assert cpu_energy.clock_hz(tmp_path) == 2_300_000_000
    assert cpu_energy.clock_max_hz(tmp_path) == 3_500_001_000


def test_the_processor_of_this_machine_opens():
    with open_device("cpu") as device:
        assert isinstance(device, cpu_energy.Cpu)
        assert device.facts().name == environment.cpu_name()
        assert device.polls == (device.poll().energy_j is not None)
    assert open_cpu(0).adapter == "cpu"
