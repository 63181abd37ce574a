"""Ceilings that a device cannot have reached: compared with its datasheet, at its highest clock, by unit."""

from __future__ import annotations

import pytest

from analysis.devices import peaks
from analysis.devices.ceilings import impossible, impossible_bandwidth, limit_of
from analysis.profile.machine import machine_of
from analysis.utilization.denominators import ceiling_of
from results.errors import Unavailable
from results.records.samples import Ceiling

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


def test_failed_rows_and_unknown_devices_refuse_nothing():
    assert impossible([row(None), row(1200e12, status="invalid")], "bf16", KNOWN) == ""
    assert impossible([row(1200e12)], "bf16", None) == ""


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
