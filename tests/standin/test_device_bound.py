"""Known answer, injected fault: a stand-in device whose kernels all take equally long, and a sweep of one cell on it.

A ceiling above the sheet is no denominator, and a recording in which each kernel is twice counts each once.
"""

import csv
import json
import sys
from pathlib import Path

import pytest

from results.store.store import read_run

pytestmark = pytest.mark.standin

HERE = Path(__file__).parent
CELL = ("--quick", "--models", "resnet18", "--batch-sizes", 8, "--size", "image_size=64", "--methods", "exact")
CELL += ("--counters", "flopledger")


def sweep(device, *words):
    """The run of a sweep that must succeed."""
    done = device.sweep(*CELL, *words)
    assert done.returncode == 0, done.stderr
    return read_run(device.out)


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
    """A product of 16384³ in 200 µs: 44 PFLOP/s on units that have 66.9 TFLOP/s."""
    device, data = device_bound
    rate = max(row.flop_per_s or 0 for row in data.ceilings)
    assert rate == pytest.approx(2 * 16384**3 / (KERNEL_NS * 1e-9), rel=1e-3)
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
    assert "of the measured peak" not in page
    done = device.run(sys.executable, "-m", "runners.report", str(device.out), "--check", "--format", "json")
    verdicts = {gate["gate"]: gate for gate in json.loads(done.stdout)}
    assert (done.returncode, verdicts["ceiling_rate"]["verdict"]) == (1, "fail")


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
