"""A machine made of rows: the best of each unit, memory beyond caches, the cheapest launch, each with its source."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.devices import ceilings, peaks
from analysis.devices.precisions import UNITS
from analysis.profile.machine import machine_of, rows_of
from results.records.samples import Ceiling


def row(operation: str = "matmul", unit: str = "fp32", **more: Any) -> Ceiling:
    values: dict[str, Any] = {"sitting": "", "device": "cuda", "precision": "", "shape": "s"}
    return Ceiling(operation=operation, unit=unit, **{**values, **more})


ROWS = [
    row(flop_per_s=3.0),
    row("convolution", flop_per_s=5.0, layout="channels_first", shape="c"),
    row("convolution", flop_per_s=8.0, layout="channels_last", shape="l"),
    row("convolution", flop_per_s=7.0, layout="channels_last"),
    row("convolution", "bf16", flop_per_s=90.0, layout="channels_last"),
    row("copy", "", bytes_per_s=4.0, family="memory", shape="128 MiB"),
    row("triad", "", bytes_per_s=6.0, family="memory", shape="256 MiB"),
    row("copy", "", bytes_per_s=50.0, family="cache"),
    row("copy", "", family="memory", status="unavailable"),
    row("launch", "", best_s=4e-6, median_s=5e-6),
    row("launch", "", best_s=3e-6, median_s=6e-6, shape="500 times"),
    row("call", "", best_s=2e-6),
]


def test_a_machine_by_hand():
    found = machine_of(ROWS, "cuda:1", "NVIDIA H200")
    assert found.peak_by_unit == {"fp32": 8.0, "bf16": 90.0}
    assert found.bytes_per_s == 6.0
    assert found.launch_s == 3e-6
    assert found.channels_last_gain_by_unit == {"fp32": 8.0 / 5.0}  # bf16 was timed in one layout only
    sheet = peaks.lookup("NVIDIA H200")
    assert found.datasheet_by_unit == {unit: sheet.peaks[unit] for unit in UNITS if unit in sheet.peaks}
    assert found.datasheet_bytes_per_s == sheet.bandwidth_bytes_per_s == 4.8e12
    assert (found.device, found.device_name) == ("cuda:1", "NVIDIA H200")
    assert found.sources["fp32"] == "fp32 convolution l channels_last, measured here"
    assert found.sources["bytes_per_s"] == "triad, 256 MiB, measured here"
    assert found.sources["launch_s"] == "launch, 500 times, measured here"
    assert "H200 datasheet" in found.sources["datasheet fp32"]


def test_what_was_not_measured_is_unknown():
    found = machine_of([], "cuda", "NVIDIA Nothing")
    assert (found.peak_by_unit, found.datasheet_by_unit, found.channels_last_gain_by_unit) == ({}, {}, {})
    assert (found.bytes_per_s, found.launch_s, found.datasheet_bytes_per_s) == (None, None, None)
    assert found.sources == {}


def test_on_a_cpu_a_call_is_what_starting_costs_and_there_is_no_sheet():
    cpu = [row("launch", "", device="cpu", best_s=1.0), row("call", "", device="cpu", best_s=2.0)]
    found = machine_of(cpu, "cpu", "NVIDIA H200")
    assert found.launch_s == 2.0
    assert (found.datasheet_by_unit, found.datasheet_bytes_per_s) == ({}, None)


def test_only_rows_of_this_device_and_these_threads_count():
    rows = [
        row(device="cpu", threads=1),
        row(device="cpu", threads=2),
        row(device="cpu"),
        row(device="cpu", threads=2, device_name="other"),
        row(device="cpu", threads=2, device_name="mine"),
        row(device="cuda"),
    ]
    assert rows_of(rows, "cpu", "mine") == [rows[0], rows[1], rows[2], rows[4]]
    assert rows_of(rows, "cpu", "mine", 2) == [rows[1], rows[2], rows[4]]
    assert rows_of(rows, "cuda:1", "mine") == [rows[5]]


# --- what others reached ---


def test_every_figure_has_a_source_and_a_known_unit():
    found = ceilings.all_figures()
    assert len(found) == 21
    assert all(figure.source and figure.unit in UNITS for figure in found)
    for figure in found:
        for name in figure.names:
            device = peaks.lookup(name)
            assert device is not None
            assert device.name == name
            printed = device.peaks.get(figure.unit)
            assert printed is None or 0.4 < figure.flop_per_s / printed < 1


@pytest.mark.parametrize(
    ("name", "unit", "rates"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", [794.5e12]),
        ("H100 80GB HBM3", "fp8", [1402.6e12]),
        ("NVIDIA H100 PCIe", "bf16", []),
        ("NVIDIA A100-PCIE-80GB", "bf16", [252.9e12]),  # another spelling of the same row
        ("NVIDIA H200", "bf16", [788e12]),
        ("NVIDIA H200", "tf32", []),
        ("Nothing", "bf16", []),
    ],
)
def test_figures_of_a_device(name: str, unit: str, rates: list[float]):
    assert [figure.flop_per_s for figure in ceilings.figures(name, unit)] == rates
