"""CPUs: which microarchitecture a processor has, what its core does in a clock by hand, and what is refused."""

from __future__ import annotations

import pytest

from analysis.devices.processors import (
    Processor,
    identify,
    microarchitectures,
    names,
    vector_units,
)
from results.errors import Unavailable

AVX512 = ("sse2", "avx", "fma", "avx512f")
AMX = (*AVX512, "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8")
WIDTH_BITS = {"sse2": 128, "avx": 256, "fma": 256, "avx512f": 512, "asimd": 128}


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
    assert identify(intel(85, name)).name == found


def test_a_part_whose_name_a_hypervisor_hides_has_no_peak() -> None:
    with pytest.raises(Unavailable, match="have one FMA unit or two, and 'Intel Xeon Processor \\(Skylake, IBRS\\)'"):
        identify(intel(85, "Intel Xeon Processor (Skylake, IBRS)"))


def test_a_model_number_that_contradicts_the_instructions_does_not_count() -> None:
    """A hypervisor says model 167, a client core without AMX, of a server's core with it."""
    assert identify(intel(167, "Intel(R) Xeon(R) Processor", AMX)).name == "Golden Cove server"
    with pytest.raises(Unavailable, match="no row for GenuineIntel family 6 model 167"):
        identify(intel(167, "11th Gen Intel(R) Core(TM) i7-11700K"))
    with pytest.raises(Unavailable):  # a later core with AMX that the table does not know
        identify(intel(143, "", (*AMX, "amx_tf32")))


def test_amd_and_arm() -> None:
    assert identify(amd(23, 49, ("fma",))).name == "Zen 2"
    assert identify(amd(25, 1, ("fma",))).name == "Zen 3"
    assert identify(amd(25, 17, AVX512)).name == "Zen 4"
    with pytest.raises(Unavailable):
        identify(amd(26, 2, AVX512))
    assert identify(Processor("0x41", "8", "0xd40", "1", "", frozenset({"asimd", "sve"}))).name == "Neoverse V1"
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


def test_no_row_does_more_than_its_registers_hold() -> None:
    for row in (row for name in names() for row in vector_units(name) if row.instructions in WIDTH_BITS):
        lanes = WIDTH_BITS[row.instructions] // int(row.unit.removeprefix("fp"))
        halves = (
            2 if row.instructions in ("sse2", "avx") else 1
        )  # a multiplication and an addition are two instructions
        assert row.multiply_adds == lanes // halves, row


def test_each_row_says_where_it_was_read() -> None:
    assert all(row.source for row in microarchitectures())
    assert all(row.source and row.evidence for name in names() for row in vector_units(name))
    assert {row.name for row in microarchitectures()} == set(names())


@pytest.mark.parametrize(("cores", "clock_hz"), [(0, 1e9), (1, 0), (-1, 1e9)])
def test_sizes_that_are_none(cores: float, clock_hz: float) -> None:
    with pytest.raises(ValueError, match="expected cores and a clock above 0"):
        vector_units("Zen 2")[0].peak(cores, clock_hz)
