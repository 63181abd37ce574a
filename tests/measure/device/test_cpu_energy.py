"""The energy of a processor, over made-up trees of /sys and /proc: packages, rounds of the counter, permissions."""

from pathlib import Path

import pytest

from analysis.devices.telemetry import energy
from measure.device import cpu_energy, environment
from measure.device.cpu_energy import open_cpu
from measure.device.telemetry import open_device
from results.records.cell import Telemetry

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
    put(tmp_path, {"sys/class/powercap/intel-rapl:0:1/name": "dram"})
    put(tmp_path, {"sys/class/powercap/intel-rapl:0:1/energy_uj": 2_000_000})
    put(tmp_path, {"sys/class/powercap/intel-rapl-mmio:0/name": "package-0"})
    put(tmp_path, {"sys/class/powercap/intel-rapl-mmio:0/energy_uj": 5_000_000})
    device = cpu(tmp_path)
    assert device.polls
    assert device.poll() == Telemetry(
        cell_id="", attempt=0, time_s=1.0, energy_j=12.5
    )  # 5 + 7.5 J: unknown stays empty
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


@pytest.mark.parametrize(("gap_s", "known"), [(262.0, True), (263.0, False)])
def test_a_counter_that_may_have_gone_round_unseen_is_not_believed(tmp_path, gap_s, known):
    put(tmp_path, package(0, 1_000_000))
    device = cpu(tmp_path, [0.0, gap_s, gap_s + 1])
    device.poll()
    put(tmp_path, package(0, 3_000_000))
    assert (device.poll().energy_j is not None) == known
    assert (device.poll().energy_j is not None) == known, "not later either: the sum would be short"
    assert ("may go round" in device.reasons.get("energy_j", "")) != known


def test_energy_that_only_root_may_read_is_absent_with_the_reason(tmp_path, monkeypatch):
    put(tmp_path, {**package(0, 5_000_000), **package(1, 6_000_000)})
    forbid(monkeypatch, tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj")
    device = cpu(tmp_path)
    assert not device.polls
    assert device.poll().energy_j is None, "one package of two is no total"
    assert "permission denied; since Linux 5.10 only root" in device.reasons["energy_j"]
    assert device.preflight()["energy_source"] is None


def forbid(monkeypatch, path: Path) -> None:
    """As Linux does since 5.10; a test that is run by root could read a file of mode 0."""
    read = Path.read_text

    def refused(self, *arguments, **more):
        if self == path:
            raise PermissionError(13, "Permission denied")
        return read(self, *arguments, **more)

    monkeypatch.setattr(Path, "read_text", refused)


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
        assert device.facts()["name"] == environment.cpu_name()
        assert device.polls == (device.poll().energy_j is not None)
    assert open_cpu(0).adapter == "rapl"


def test_a_round_of_unknown_length_is_not_guessed(tmp_path):
    put(tmp_path, package(0, 5_000_000, range_uj=None))
    device = cpu(tmp_path, [0.0, 1.0, 2.0])
    assert device.poll().energy_j == 5.0
    put(tmp_path, package(0, 1_000_000, range_uj=None))
    assert device.poll().energy_j is None
    assert device.poll().energy_j is None
    assert "went round" in device.reasons["energy_j"]
