"""Command, law: a real sweep on a CUDA device has units, energy, clock, memory and phases in its rows; needs a GPU."""

import csv
from pathlib import Path

import pytest

from results.records.cell import MEASURED, Run
from results.store.store import RunData, read_run
from tests.support.fakes.real_sweeps import sweep

pytestmark = pytest.mark.gpu

UNITS = {"fp32": "fp32", "tf32": "tf32", "amp-bf16": "bf16", "amp-fp16": "fp16"}
DTYPES = {"fp32": "float32", "tf32": "float32", "amp-bf16": "bfloat16", "amp-fp16": "float16"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    words = ("--device", "cuda", "--quick", "--models", "resnet18", "--batch-sizes", "64", "--size", "image_size=128")
    done = sweep(*words, "--precisions", ",".join(UNITS), "--out", "run", cwd=folder, timeout_s=500)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def data(path: Path) -> RunData:
    return read_run(path)


@pytest.fixture(params=list(UNITS))
def run(data: RunData, request: pytest.FixtureRequest) -> Run:
    (found,) = [run for run in data.runs if run.precision == request.param]
    return found


def test_a_cell_is_measured_in_every_precision_on_its_unit(run):
    assert run.status in MEASURED
    assert (run.convolution_unit, run.matmul_unit) == (UNITS[run.precision],) * 2
    assert {key.partition("/")[2] for key in run.executed} == {DTYPES[run.precision]}


def test_flags_are_read_back_before_and_after(run):
    for flags in (run.flags_before, run.flags_after):
        allowed = ("ieee", "none") if run.precision == "fp32" else ("tf32",)
        assert flags["cuda.matmul.fp32_precision"] in allowed
        assert flags["cudnn.conv.fp32_precision"] in allowed


def test_times_are_the_devices_and_backward_has_some(data, run):
    rows = data.samples[data.samples["cell_id"] == run.cell_id]
    timed = rows[rows["part"] == "measure"]
    assert (timed["device_s"] > 0).all()
    assert (timed["device_s"] <= timed["wall_s"] * 1.05).all()
    phases = rows[rows["part"] == "phase"].groupby("phase")["device_s"].sum()
    assert set(phases.index) == {"forward", "loss", "backward", "optimizer"}
    assert phases["backward"] > phases["forward"] > 0, "two gradients cost more than one pass"
    assert run.host_bound in (True, False)


def test_energy_and_clock_of_the_window(data, run):
    assert run.energy_j > 0
    assert run.energy_method in ("counter", "polled")
    rows = data.telemetry[data.telemetry["cell_id"] == run.cell_id]
    assert len(rows) >= 5
    assert (rows["sm_clock_hz"] > 100e6).all()
    assert 10 < run.energy_j / (run.window_end_s - run.window_start_s) < 2000, "watts"
    assert rows["time_s"].min() <= run.window_start_s + 0.3
    assert rows["time_s"].max() >= run.window_end_s - 0.3


def test_memory_holds_weights_gradients_and_momentum_at_least(run):
    assert run.peak_memory_bytes >= 3 * 4 * run.parameters
    assert run.reserved_memory_bytes >= run.peak_memory_bytes


def test_each_precision_has_a_ceiling_and_a_utilization(path, data, run):
    assert run.precision in {row.precision for row in data.ceilings if row.flop_per_s}
    with open(path / "utilization.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["cell_id"] == run.cell_id and row["method"] == "exact"]
    (ceiling,) = [row for row in rows if row["denominator"] == "ceiling"]
    assert 0 < float(ceiling["utilization_ratio"]) < 2
    assert not any("executed_differs" in row["warnings"] for row in rows)


def test_the_state_before_the_run_is_kept(data):
    (session,) = data.sessions
    assert session.device == "cuda"
    assert session.device_name
    assert session.driver
    assert "other_processes" in session.preflight
