"""Known answer: utilization, ceilings, clock, energy and time planted in a stand-in come out of `runners.sweep`."""

import csv

import pytest

from analysis.devices.peaks import stand_in_warning
from results.store.store import read_run

pytestmark = pytest.mark.standin

CELL = ("--quick", "--models", "resnet18", "--batch-sizes", 8, "--size", "image_size=64", "--methods", "exact")
CELL += ("--counters", "flopledger")

EFFICIENCY = 0.0005
PLANTED = {"fp32": 5 * EFFICIENCY, "tf32": EFFICIENCY, "amp-bf16": EFFICIENCY, "amp-fp16": EFFICIENCY}
"""Of the datasheet's peaks. In fp32 five times as much, as a probe of its ceiling would take half a minute; still less
than in tf32, or a search for the fastest algorithm would rightly take the one in fp32 there."""

PEAKS = {"fp32": 66.9e12, "tf32": 494.7e12, "amp-bf16": 989.4e12, "amp-fp16": 989.4e12}
"""The H100's datasheet, which the plan's defaults repeat."""

SHEET_MHZ = {"fp32": 1980, "tf32": 1830, "amp-bf16": 1830, "amp-fp16": 1830}
"""The clocks that the sheet's figures imply: 132 multiprocessors × 128 or 1024 (2048) multiply-adds × 2 × clock."""

MHZ = 1485
WATT = 300
POWER_CAP = 0x4  # nvmlClocksEventReasonSwPowerCap


def sweep(device, *words):
    """The run of a sweep that must succeed."""
    done = device.sweep(*CELL, *words)
    assert done.returncode == 0, done.stderr
    return read_run(device.out)


def utilization(device, precision, denominator):
    with open(device.out / "utilization.csv", newline="") as file:
        (row,) = [
            row for row in csv.DictReader(file) if (row["precision"], row["denominator"]) == (precision, denominator)
        ]
    return float(row["utilization_ratio"])


@pytest.fixture(scope="module")
def slow_clock(standin_of_module):
    """A device that runs everything at PLANTED shares of its peaks, at 3/4 of its clock, under a power cap."""
    device = standin_of_module(
        efficiency=EFFICIENCY, fp32_tflops=5 * 66.9, kernel_ns=10, call_ns=10, sm_mhz=MHZ, event_reasons=POWER_CAP,
        idle_w=WATT, busy_w=WATT, power_limit_w=500,
    )  # fmt: skip
    return device, sweep(device, "--precisions", ",".join(PEAKS))


@pytest.mark.parametrize("precision", PEAKS)
def test_planted_utilization_is_found(slow_clock, precision):
    device, _ = slow_clock
    assert utilization(device, precision, "datasheet") == pytest.approx(PLANTED[precision], rel=0.002)
    assert utilization(device, precision, "clock") == pytest.approx(
        PLANTED[precision] * SHEET_MHZ[precision] / MHZ, rel=0.002
    )
    assert utilization(device, precision, "ceiling") == pytest.approx(1, rel=0.002)


@pytest.mark.parametrize("precision", PEAKS)
def test_the_ceiling_is_the_planted_one(slow_clock, precision):
    _, data = slow_clock
    rates = [row.flop_per_s for row in data.ceilings if row.precision == precision and row.flop_per_s]
    assert max(rates) == pytest.approx(PLANTED[precision] * PEAKS[precision], rel=0.002)


def test_a_ceiling_says_its_clock_and_power_and_what_is_sustained(slow_clock):
    """The device runs as fast after three seconds as at first; as the power cap holds it, cells are divided by both."""
    device, data = slow_clock
    timed = [row for row in data.ceilings if row.operation in ("matmul", "convolution") and row.status == "ok"]
    assert {(row.sm_clock_hz, row.reason) for row in timed} == {(MHZ * 1e6, f"note: drew {WATT} W")}
    sustained = {row.precision: row.flop_per_s for row in timed if row.family.startswith("sustained")}
    assert sustained == pytest.approx({name: PLANTED[name] * PEAKS[name] for name in PEAKS}, rel=0.01)
    assert utilization(device, "amp-bf16", "sustained") == pytest.approx(1, rel=0.01)
    with open(device.out / "utilization.csv", newline="") as file:
        assert {row["power_capped_ratio"] for row in csv.DictReader(file)} == {"1.0"}


def test_energy_is_the_planted_power_times_the_window(slow_clock):
    _, data = slow_clock
    for run in data.runs:
        assert run.energy_j == pytest.approx(WATT * (run.window_end_s - run.window_start_s), rel=0.02), run.precision


def test_energy_of_an_item_is_power_times_its_time(slow_clock):
    device, _ = slow_clock
    with open(device.out / "utilization.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["denominator"] == "datasheet"]
    assert len(rows) == len(PEAKS)
    for row in rows:
        assert float(row["energy_per_item_j"]) == pytest.approx(WATT * float(row["time_s"]) / 8, rel=0.02)  # batch 8


def test_clock_power_limit_and_throttling_are_told(slow_clock):
    _, data = slow_clock
    (session,) = data.sessions
    assert session.preflight["power_limit_w"] == 500
    assert set(data.telemetry["sm_clock_hz"]) == {MHZ * 1e6}
    assert all("sw_power_cap" in reasons for reasons in data.telemetry["event_reasons"])


def test_rows_say_that_no_hardware_was_measured(slow_clock):
    device, data = slow_clock
    (session,) = data.sessions
    assert session.device_name == "Stand-in of NVIDIA H100 80GB HBM3"
    assert session.environment["stand_in"] is True
    assert "Stand-in of NVIDIA H100" in (device.out / "report.html").read_text()
    assert {run.warnings[0].partition(":")[0] for run in data.runs} == {"stand_in"}
    assert data.manifest.notes == (stand_in_warning(session.device_name),)
