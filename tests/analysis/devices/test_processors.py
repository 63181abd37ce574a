"""CPUs: which microarchitecture a processor has, what its core does in a clock by hand, and what is refused.

The unit of a float32 product: tf32 where the policy allows it and the device is no CPU.

Memories of devices: every name of the table of peaks but those left out on purpose.

Ceilings that a device cannot have reached: compared with its datasheet, at its highest clock, by unit.
"""

import pytest

from analysis.devices import memory as devices_memory
from analysis.devices import peaks
from analysis.devices.ceilings import impossible, impossible_bandwidth, limit_of
from analysis.devices.peaks import all_devices
from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.devices.processors import Processor, identify, vector_units
from analysis.profile.roofline import machine_of
from analysis.utilization.denominators import ceiling_of
from results.errors import Unavailable
from results.records.cell import Ceiling

AVX512 = ("sse2", "avx", "fma", "avx512f")


def intel(model: int, name: str = "", flags: tuple[str, ...] = AVX512) -> Processor:
    return Processor("GenuineIntel", "6", str(model), "7", name, frozenset(flags))


def amd(family: int, model: int, flags: tuple[str, ...]) -> Processor:
    return Processor("AuthenticAMD", str(family), str(model), "1", "AMD EPYC", frozenset(flags))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Intel(R) Xeon(R) Bronze 3104 CPU @ 1.70GHz", "Skylake server, one unit"),
        ("Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz", "Skylake server, one unit"),
        ("Intel(R) Xeon(R) Gold 5118 CPU @ 2.30GHz", "Skylake server, one unit"),
        ("Intel(R) Xeon(R) Gold 5122 CPU @ 3.60GHz", "Skylake server, two units"),
        ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", "Skylake server, two units"),
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "Skylake server, two units"),
    ],
)
def test_parts_of_one_model_differ_by_their_name(name: str, found: str) -> None:
    assert identify(intel(85, name)) == found


def test_a_part_whose_name_a_hypervisor_hides_has_no_peak() -> None:
    with pytest.raises(Unavailable, match="have one FMA unit or two, and 'Intel Xeon Processor \\(Skylake, IBRS\\)'"):
        identify(intel(85, "Intel Xeon Processor (Skylake, IBRS)"))


def test_amd_and_arm() -> None:
    assert identify(amd(23, 49, ("fma",))) == "Zen 2"
    assert identify(amd(25, 1, ("fma",))) == "Zen 3"
    assert identify(amd(25, 17, AVX512)) == "Zen 4"
    with pytest.raises(Unavailable):
        identify(amd(26, 2, AVX512))
    assert identify(Processor("0x41", "8", "0xd40", "1", "", frozenset({"asimd", "sve"}))) == "Neoverse V1"
    with pytest.raises(Unavailable, match="Apple documents no units"):
        identify(Processor("0x61", "8", "0x032", "0", "", frozenset({"asimd"})))


@pytest.mark.parametrize(
    ("microarchitecture", "unit", "flop_per_clock"),
    [
        ("Nehalem", "fp32", 4 + 4),  # one 4-wide multiplication, one 4-wide addition
        ("Sandy Bridge", "fp32", 8 + 8),
        ("Haswell", "fp32", 2 * 8 * 2),  # two 256-bit FMA of 8 lanes
        ("Skylake server, one unit", "fp32", 1 * 16 * 2),
        ("Skylake server, two units", "fp64", 2 * 8 * 2),
        ("Golden Cove server", "bf16", 16 * 16 * 32 * 2 // 16),  # a product of full tiles in 16 clocks
        ("Golden Cove server", "int8", 16 * 16 * 64 * 2 // 16),
        ("Zen", "fp32", 1 * 8 * 2),
        ("Zen 4", "fp32", 1 * 16 * 2),
        ("Neoverse V1", "fp32", 2 * 8 * 2),  # SVE of 256 bits
        ("Neoverse V2", "fp64", 4 * 2 * 2),
    ],
)
def test_flop_a_clock(microarchitecture: str, unit: str, flop_per_clock: int) -> None:
    rows = [row for row in vector_units(microarchitecture) if row.unit == unit]
    assert rows[0].flop_per_clock == flop_per_clock
    assert rows[0].peak(2, 3.5e9) == pytest.approx(2 * 3.5e9 * flop_per_clock)


UNKNOWN = {
    *("NVIDIA B300 SXM6 AC", "NVIDIA GB300"),
    # cards of two sizes have one name
    *("NVIDIA GeForce RTX 2060", "NVIDIA GeForce RTX 3050", "NVIDIA GeForce RTX 3060"),
    *("NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 5060 Ti"),
    # the runtime shows cores, or no page was read that says it
    *("TPU v2", "TPU v3", "TPU v4", "TPU v5", "TPU v5p", "TPU7x", "TPU v7x"),
    *("AWS Trainium", "AWS Trainium1", "AWS Trainium2", "AWS Trainium3", "AWS Inferentia2"),
}


def test_every_device_with_a_peak_has_a_memory_or_is_left_out() -> None:
    named = {name for device in all_devices() for name in device.names}
    assert {name for name in named if devices_memory.lookup(name) is None} == UNKNOWN
    assert set(devices_memory.names()) == named - UNKNOWN


@pytest.mark.parametrize(
    "name", [name for name in devices_memory.names() if devices_memory.lookup(name).verification == "name"]
)
def test_a_name_that_says_it_agrees(name: str) -> None:
    memory = devices_memory.lookup(name)
    assert f"{memory.memory_bytes // 10**9}GB" in name.replace("G HBM", "GB HBM")


H100 = "NVIDIA H100 80GB HBM3"
KNOWN = peaks.lookup(H100)


def row(rate, unit="bf16", operation="matmul", **more):
    told = {"sitting": "s", "device": "cuda", "precision": "amp-bf16", "shape": "8192x8192x8192", "status": "ok"}
    return Ceiling(**{**told, "unit": unit, "operation": operation, "flop_per_s": rate, **more})


@pytest.mark.parametrize(
    ("unit", "operation", "highest_hz", "family", "limit"),
    [
        ("bf16", "matmul", None, "", 132 * 2048 * 2 * 1980e6),  # the sheet's boost is above the 1830 MHz of its figure
        ("bf16", "convolution", 1980e6, "winograd", 132 * 2048 * 2 * 1980e6),
        ("bf16", "matmul", 1000e6, "", 989.4e12),  # a device that names a lower clock: the sheet is believed
        ("fp32", "matmul", 1980e6, "winograd", 66.9e12),
        ("fp32", "convolution", 1980e6, "", 66.9e12),  # no fast algorithm is named
        ("fp32", "convolution", 1980e6, "winograd", 4 * 66.9e12),  # F(4 × 4, 3 × 3)
    ],
)
def test_the_limit_of_a_unit(unit, operation, highest_hz, family, limit):
    assert limit_of(row(1.0, unit, operation, family=family), KNOWN, highest_hz) == pytest.approx(limit, rel=1e-3)


def test_one_impossible_kernel_takes_its_unit_s_ceiling_away():
    rows = [row(700e12), row(1200e12), row(50e12, "fp32"), row(200e12, "fp32", "convolution", family="fft")]
    assert impossible(rows, "fp32", KNOWN) == ""
    assert impossible(rows, "bf16", KNOWN).startswith("bf16 matmul 8192x8192x8192 was timed at 1.2e+15 FLOP/s")
    found = ceiling_of(rows, KNOWN)
    assert dict(found.peak_by_unit) == {"fp32": 200e12}
    with pytest.raises(Unavailable, match=r"^ceiling_above_sheet: bf16 matmul"):
        found.peak({"bf16": 1})
    assert ceiling_of(rows).peak({"bf16": 1}) == 1200e12, "nobody knows this device's peak"


def test_a_machine_has_no_roof_above_its_sheet():
    """The sheet's memory: 3.35e12 B/s."""
    copies = [row(None, "", "triad", bytes_per_s=rate, family="memory") for rate in (3.0e12, 14.8e12)]
    assert impossible_bandwidth(copies[0], KNOWN) == ""
    honest, lying = (machine_of([row(700e12), copy], "cuda", H100) for copy in copies)
    assert (honest.bytes_per_s, honest.peak_by_unit) == (3.0e12, {"bf16": 700e12})
    assert lying.bytes_per_s is None
    assert lying.sources["bytes_per_s"].startswith("ceiling_above_sheet: triad")
    above = machine_of([row(1200e12)], "cuda", H100)
    assert above.peak_by_unit == {}
    assert above.sources["bf16"].startswith("ceiling_above_sheet: bf16 matmul")


@pytest.mark.parametrize(
    ("policy", "device", "unit"),
    [("fp32", "cuda", "fp32"), ("tf32", "cuda:1", "tf32"), ("fp32", "cpu", "fp32"), ("tf32", "cpu", "fp32")],
)
def test_tf32_needs_the_policy_and_a_device_that_has_it(policy: str, device: str, unit: str) -> None:
    assert unit_of("float32", PRECISIONS[policy], device) == unit


@pytest.mark.parametrize(("cores", "clock_hz"), [(0, 1e9), (1, 0), (-1, 1e9)])
def test_sizes_that_are_none(cores: float, clock_hz: float) -> None:
    with pytest.raises(ValueError, match="expected cores and a clock above 0"):
        vector_units("Zen 2")[0].peak(cores, clock_hz)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("NVIDIA H100 80GB HBM3", 80), ("h100 80gb hbm3", 80), ("Tesla T4", 16), ("NVIDIA H200", 141)],
)
def test_known_ones(name: str, gigabytes: int) -> None:
    assert devices_memory.lookup(name).memory_bytes == gigabytes * 10**9
