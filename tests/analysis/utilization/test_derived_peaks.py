"""The denominator `derived` of a CPU's cell: which instructions it takes, and what refuses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.utilization.denominators import (
    Denominator,
    datasheet,
    denominators,
    derived,
    instructions_of,
    session_peaks,
)
from results.errors import Unavailable
from results.records.cell import Run
from results.records.samples import Ceiling

CELL = {"model": "resnet18", "batch_size": 8, "device": "cpu"}
BF16 = Run(**CELL, precision="amp-bf16", cell_id="c", attempt=1, sitting="s0", status="ok")
FP32 = replace(BF16, precision="fp32")


def row(unit: str, instructions: str, peak: float | None, reason: str = "") -> Ceiling:
    return Ceiling(
        sitting="s0",
        device="cpu",
        precision="fp32",
        unit=unit,
        operation="issue",
        shape=instructions,
        flop_per_s=1e9,
        sm_clock_hz=3.8e9,
        instructions=instructions,
        microarchitecture="Golden Cove server",
        cores=2.0,
        derived_flop_per_s=peak,
        reason=reason,
    )


CORES = [
    row("fp32", "avx512f", 486.4e9),
    row("fp32", "fma", 268.8e9),
    row("bf16", "amx_bf16", 7782.4e9),
    row("bf16", "avx512_bf16", None, "note: no derived peak: no row for avx512_bf16"),
]


def test_the_fastest_instructions_where_nobody_said_which_ran() -> None:
    found = derived(CORES, FP32)
    assert found.peak({"fp32": 5}) == 486.4e9
    assert found.source({"fp32": 5}) == "fp32 by avx512f of 2 Golden Cove server cores at 3.8 GHz, measured"


def test_the_instructions_that_ran_decide() -> None:
    ran = replace(FP32, instructions={"convolution/float32": ("fma", "reference"), "matmul/float32": ("fma",)})
    assert derived(CORES, ran).peak({"fp32": 5}) == 268.8e9
    both = replace(FP32, instructions={"convolution/float32": ("fma",), "matmul/float32": ("avx512f",)})
    assert derived(CORES, both).peak({"fp32": 5}) == 486.4e9


def test_work_on_two_units_is_weighed_by_both_peaks() -> None:
    ran = replace(BF16, instructions={"convolution/bfloat16": ("amx_bf16",), "matmul/float32": ("avx512f",)})
    assert instructions_of(ran, "bf16") == {"amx_bf16"}
    expected = 300 / (200 / 7782.4e9 + 100 / 486.4e9)
    assert derived(CORES, ran).peak({"bf16": 200, "fp32": 100}) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("avx512_bf16",), "no row for avx512_bf16"),
        (("emulated",), "bf16 products ran on emulated: no core's kernel was timed with that"),
        (("reference",), "bf16 products ran on reference"),
    ],
)
def test_what_ran_on_instructions_without_a_peak_is_refused(names: tuple[str, ...], words: str) -> None:
    ran = replace(BF16, instructions={"convolution/bfloat16": names})
    with pytest.raises(Unavailable, match=words):
        derived(CORES, ran).peak({"bf16": 5})


def test_it_stands_beside_the_others_only_where_cores_were_timed_and_is_no_ceiling() -> None:
    product = replace(row("fp32", "", None), operation="matmul", flop_per_s=100e9, median_s=0.1)
    sheet = datasheet("a CPU", "cpu")

    def beside(ceilings: list[Ceiling]) -> dict[str, Denominator]:
        return {each.name: each for each in denominators(FP32, session_peaks(FP32, sheet, ceilings, None), None, True)}

    before = beside([product])
    assert list(before) == ["datasheet", "clock", "ceiling", "user"]
    after = beside([product, *CORES])
    assert after["derived"].peak({"fp32": 5}) == 486.4e9
    assert after["ceiling"].peak({"fp32": 5}) == 100e9
    elsewhere = [replace(each, sitting="s1") for each in CORES]
    assert "derived" not in beside(elsewhere)
