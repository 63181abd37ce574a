"""Command, definition, law: a real sweep of workloads of known FLOP; each file follows from sizes and raw rows."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.utilization.step_times import ASIDE
from measure.timing.rank_blocks import CEILING
from results.records.answers import Utilization
from results.records.cell import Run
from results.records.rows import header
from results.store.store import RunData, read_run
from tests.support.fakes.commands import code_without
from tests.support.fakes.real_sweeps import ENVIRON, QUICK, here

BATCH = 2
WIDTH, DEPTH = 1024, 4
SIDE, CHANNELS = 64, 64
PRODUCT = 2 * BATCH * WIDTH**2  # of one layer, a multiply-add being 2
CONVOLUTION = 2 * BATCH * SIDE**2 * 9 * CHANNELS**2
PRODUCTS = ("matmul", "convolution")
MODEL_FLOP = {
    "synthetic_matmul": DEPTH * PRODUCT + (2 * DEPTH - 1) * PRODUCT,  # the first layer's input needs no gradient
    "synthetic_convolution": CONVOLUTION + CONVOLUTION,  # nor does the convolution's
}
FORWARD = {"synthetic_matmul": DEPTH * PRODUCT, "synthetic_convolution": CONVOLUTION}
PARAMETERS = {"synthetic_matmul": DEPTH * WIDTH**2, "synthetic_convolution": 9 * CHANNELS**2}

PARTS = {"warmup": 0, "measure": 1, CEILING: 1, **dict.fromkeys(ASIDE, 1), "phase": 2}
"""Part of a cell's blocks → when they are timed. A host may set any measured one aside, or none."""

WITHOUT_TORCH = code_without("torch torchvision", "runners.sweep.__main__", warnings=True)


class Done:
    """The sweep that these tests look at: two workloads, from a parent that cannot import torch."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run"
        models = ",".join(MODEL_FLOP)
        words = [
            "--models",
            models,
            "--batch-sizes",
            str(BATCH),
            "--peak-tflops",
            "0.5",
            "--seed",
            "3",
        ]
        words = [sys.executable, "-c", WITHOUT_TORCH, *QUICK, *words, "--format", "json", "--out", str(self.path)]
        self.answer = subprocess.run(
            words, cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=240, check=False
        )
        self.data: RunData = read_run(self.path)
        with open(self.path / "utilization.csv", newline="") as file:
            self.utilization = list(csv.DictReader(file))

    def rows(self, run: Run, **wanted: str) -> list[dict[str, str]]:
        return [
            row
            for row in self.utilization
            if row["cell_id"] == run.cell_id and all(row[name] == value for name, value in wanted.items())
        ]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(tmp_path_factory.mktemp("sweep"))


def test_every_file_is_there(done):
    assert done.answer.returncode == 0, done.answer.stderr
    assert "arning" not in done.answer.stderr
    found = {str(file.relative_to(done.path)) for file in done.path.rglob("*") if file.is_file()}
    traces = {run.trace_id for run in done.data.runs}
    wanted = {"manifest.json", "runs.csv", "samples.csv", "flop_counts.csv", "sessions.csv", "ceilings.csv"}
    wanted |= {f"operations/{trace}{ending}" for trace in traces for ending in (".csv.gz", ".storages.csv.gz")}
    wanted |= {"utilization.csv", "step_times.csv", "cleaned/flop_counts.csv", "cleaned/cleaning_log.csv"}
    assert wanted <= found
    assert {Path(name).suffix for name in found if name.startswith("figures/")} == {".png", ".svg"}


def test_each_cell_is_one_whole_row(done):
    assert done.data.problems == []
    assert done.data.runs == done.data.all_runs
    points = sorted((run.model, run.batch_size) for run in done.data.runs)
    assert points == sorted((model, BATCH) for model in MODEL_FLOP)
    for run in done.data.runs:
        assert (run.status, run.reason) == ("ok", "")
        assert (run.attempt, run.session, run.quick, run.seed) == (1, "s0", True, 3)
        assert (run.parameters, run.items_per_step) == (PARAMETERS[run.model], BATCH)
        assert (run.convolution_unit, run.matmul_unit) == ("fp32", "fp32")
        assert run.flags_before == run.flags_after
        assert (run.energy_j, run.host_bound) == (None, None)
        assert 0 < run.last_loss < 100
        assert run.last_loss != run.first_loss, "it learns on more than one batch"


def test_what_a_real_step_executed_is_what_the_sizes_say(done):
    for run in done.data.runs:
        kind = "matmul" if run.model == "synthetic_matmul" else "convolution"
        assert run.executed == {f"{kind}/float32": MODEL_FLOP[run.model]}


def test_samples_lie_where_the_row_says_and_nowhere_else(done):
    for run in done.data.runs:
        mine = done.data.samples[done.data.samples["cell_id"] == run.cell_id]
        assert mine["index"].tolist() == list(range(len(mine)))
        parts = mine["part"]
        assert {*PARTS} - {*ASIDE} <= {*parts} <= {*PARTS}
        assert parts.map(PARTS).is_monotonic_increasing, "warm-up, blocks of steps and of the ceiling, phases"
        blocks = mine[mine["part"] == "measure"]
        assert len(blocks) >= 3
        assert run.window_start_s == blocks["start_s"].iloc[0]
        assert run.window_end_s == pytest.approx(blocks["start_s"].iloc[-1] + blocks["wall_s"].iloc[-1])
        assert 0.4 <= blocks["wall_s"].sum() <= run.window_end_s - run.window_start_s
        warm = mine[mine["part"] == "warmup"]
        assert run.warmup_steps == warm["steps"].sum()
        assert warm["start_s"].max() < run.window_start_s
        phases = mine[mine["part"] == "phase"]
        assert set(phases["phase"]) == {"forward", "loss", "backward", "optimizer"}
        assert phases["start_s"].min() >= run.window_end_s


def step_s(done: Done, run: Run) -> float:
    """Total time over total steps of the measured blocks."""
    rows = done.data.samples
    blocks = rows[(rows["cell_id"] == run.cell_id) & (rows["part"] == "measure")]
    return float(blocks["wall_s"].sum() / blocks["steps"].sum())


def test_utilization_is_flop_over_time_times_peak(done):
    """Each numerator over each denominator, from sizes, samples.csv and ceilings.csv."""
    kernels = [row for row in done.data.ceilings if row.operation in PRODUCTS and row.flop_per_s is not None]
    ceiling = max(row.flop_per_s for row in kernels)
    assert all(row.flop / row.median_s == pytest.approx(row.flop_per_s) for row in kernels)
    peaks = {"ceiling": ceiling, "user": 0.5e12}
    numerators = {("exact", "flopledger"): MODEL_FLOP}
    numerators |= {("theory", counter): {m: 3 * f for m, f in FORWARD.items()} for counter in ("fvcore", "ptflops")}
    numerators[("theory_as_published", "fvcore")] = {m: 3 * f // 2 for m, f in FORWARD.items()}
    for run in done.data.runs:
        time_s = step_s(done, run)
        for (method, source), flop in numerators.items():
            for denominator, peak in peaks.items():
                (row,) = done.rows(run, method=method, numerator_source=source, denominator=denominator)
                assert int(row["model_flop"]) == flop[run.model]
                assert float(row["time_s"]) == pytest.approx(time_s)
                assert float(row["peak_flop_per_s"]) == pytest.approx(peak)
                assert float(row["utilization_ratio"]) == pytest.approx(flop[run.model] / (time_s * peak))
                assert float(row["items_per_s"]) == pytest.approx(BATCH / time_s)
                low, high = float(row["utilization_low_ratio"]), float(row["utilization_high_ratio"])
                assert low < float(row["utilization_ratio"]) < high


def test_what_a_cpu_lacks_is_a_row_with_a_reason(done):
    for run in done.data.runs:
        for denominator in ("datasheet", "clock"):
            (row,) = done.rows(run, method="exact", denominator=denominator)
            assert (row["status"], row["utilization_ratio"], row["peak_flop_per_s"]) == ("unavailable", "", "")
            assert row["reason"]


def test_stdout_is_one_json_document_of_the_same_rows(done):
    document = json.loads(done.answer.stdout)
    denominators = {row["denominator"] for row in document}
    assert denominators == {"datasheet", "clock", "user", "ceiling", "paired_ceiling"}
    assert len(document) == len(done.utilization) == 2 * 4 * len(denominators)  # cells × numerators × denominators
    for said, kept in zip(document, done.utilization, strict=True):
        assert set(said) == set(header(Utilization))
        assert (said["cell_id"], said["method"], said["denominator"]) == (
            kept["cell_id"],
            kept["method"],
            kept["denominator"],
        )
        ratio = said["utilization_ratio"]
        assert kept["utilization_ratio"] == ("" if ratio is None else repr(ratio))


def test_resuming_a_finished_run_measures_nothing_and_answers_the_same(done, tmp_path):
    before = {name: (done.path / name).read_bytes() for name in ("runs.csv", "samples.csv", "utilization.csv")}
    again = here("--resume", done.path, "--format", "csv", cwd=tmp_path, figures=False)
    assert again.returncode == 0, again.stderr
    assert "2 of 2 cells are measured already" in again.stderr
    assert again.stdout.encode() == before["utilization.csv"], "stdout is the file and nothing else"
    assert {name: (done.path / name).read_bytes() for name in before} == before
    assert len(read_run(done.path).manifest.commands) == 2
