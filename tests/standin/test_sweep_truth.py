"""What was planted in a stand-in comes out of `runners.sweep`: utilization, ceilings, clock, energy, step time."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from analysis.devices.peaks import stand_in_warning
from results.store.store import read_run

pytestmark = pytest.mark.standin

HERE = Path(__file__).parent
CELL = ("--quick", "--models", "resnet18", "--batch-sizes", 8, "--image-size", 64, "--methods", "exact")
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
    (sitting,) = data.sittings
    assert sitting.preflight["power_limit_w"] == 500
    assert set(data.telemetry["sm_clock_hz"]) == {MHZ * 1e6}
    assert all("sw_power_cap" in reasons for reasons in data.telemetry["event_reasons"])


def test_rows_say_that_no_hardware_was_measured(slow_clock):
    device, data = slow_clock
    (sitting,) = data.sittings
    assert sitting.device_name == "Stand-in of NVIDIA H100 80GB HBM3"
    assert sitting.environment["stand_in"] is True
    assert "Stand-in of NVIDIA H100" in (device.out / "report.html").read_text()
    assert {run.warnings[0].partition(":")[0] for run in data.runs} == {"stand_in"}
    assert data.manifest.notes == (stand_in_warning(sitting.device_name),)


KERNEL_NS = 200_000


@pytest.fixture(scope="module")
def device_bound(standin_of_module):
    """Each kernel alike, whatever it does: a large product's rate is above the sheet. CUPTI records each twice."""
    device = standin_of_module(kernel_ns=KERNEL_NS, cupti_twice=1)
    return device, sweep(device, "--precisions", "fp32", "--methods", "exact,batch", "--profile", "kineto")


def fractions(device, denominator):
    with open(device.out / "utilization.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["denominator"] == denominator]


def test_a_ceiling_above_the_sheet_is_no_denominator(device_bound):
    """A product of 8192³ in 200 µs: 5.5 PFLOP/s on units that have 66.9 TFLOP/s."""
    device, data = device_bound
    rate = max(row.flop_per_s or 0 for row in data.ceilings)
    assert rate == pytest.approx(2 * 8192**3 / (KERNEL_NS * 1e-9), rel=1e-3)
    for row in fractions(device, "ceiling"):
        assert (row["status"], row["utilization_ratio"]) == ("unavailable", "")
        assert row["reason"].startswith("ceiling_above_sheet: fp32 ")
        assert row["reason"].endswith(f"its unit has {132 * 128 * 2 * 1980e6:.4g}"), row["reason"]
    for row in fractions(device, "datasheet"):
        planted = float(row["model_flop"]) / float(row["time_s"]) / 66.9e12
        assert float(row["utilization_ratio"]) == pytest.approx(planted, rel=1e-6)


def test_it_is_in_no_headline_and_no_evidence(device_bound):
    device, _ = device_bound
    page = (device.out / "report.html").read_text()
    assert "of the datasheet peak" in page
    assert "of the measured ceiling" not in page
    done = device.run(sys.executable, "-m", "runners.report", str(device.out), "--check", "--format", "json")
    verdicts = {gate["gate"]: gate for gate in json.loads(done.stdout)}
    assert (done.returncode, verdicts["ceiling_limit"]["verdict"]) == (1, "fail")


def test_kernels_recorded_twice_count_once_in_a_kept_recording(device_bound):
    """FLOP of the work's recording by its kernels: found, without duplicates, and filled up to the exact count."""
    device, _ = device_bound
    with open(device.out / "cleaned/profile_counts.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "kineto"]
    assert {row["phase"] for row in rows} == {"forward", "backward"}
    linear = 2 * 8 * 512 * 1000  # the one product whose kernel has a name that says so, in a batch of 8
    products = {"forward": 1, "backward": 2}
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        assert int(row["found_flop"]) == 2 * products[row["phase"]] * linear, "as it was recorded"
        assert int(row["deduplicated_flop"]) == products[row["phase"]] * linear
        assert int(row["removed"]) == products[row["phase"]]
        assert row["cleaned_flop"] == row["exact_flop"] != ""


def test_launches_times_duration_is_the_step_time(device_bound, standin):
    """Copies and memsets of a step take a few microseconds more: 0.1 % of 186 launches."""
    _, data = device_bound
    done = standin().run(sys.executable, str(HERE / "programs" / "steps_on_device.py"), "8", "64", "resnet18")
    assert done.returncode == 0, done.stderr
    launches = json.loads(done.stdout)["resnet18"][2]
    rows = data.samples[data.samples["part"] == "measure"]
    step_s = rows["device_s"].sum() / rows["steps"].sum()
    assert step_s == pytest.approx(launches * KERNEL_NS * 1e-9, rel=0.001)


def test_the_phases_are_the_step(device_bound):
    _, data = device_bound
    rows = data.samples
    step_s = {
        part: rows[rows["part"] == part]["device_s"].sum() / rows[rows["part"] == part]["steps"].sum()
        for part in ("measure", "phase")
    }
    phases = rows[rows["part"] == "phase"].groupby("phase").agg({"device_s": "sum", "steps": "sum"})
    assert set(phases.index) == {"forward", "loss", "backward", "optimizer"}
    assert (phases["device_s"] / phases["steps"]).sum() == pytest.approx(step_s["measure"], rel=0.001)


@pytest.mark.slow
def test_a_step_whose_device_waits_is_host_bound(device_bound, standin):
    """Calls that take the host 50 times as long as a kernel takes the device, against the reverse."""
    _, data = device_bound
    assert [run.host_bound for run in data.runs] == [False]
    waiting = standin(kernel_ns=1000, call_ns=50_000)
    assert [run.host_bound for run in sweep(waiting, "--precisions", "fp32").runs] == [True]
