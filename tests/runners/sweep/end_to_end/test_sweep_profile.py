"""Command, definition: a real sweep with --profile kineto keeps recordings, and their cleaned counts are exact."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from results.store.layout import recording_file
from results.store.store import read_run
from tests.support.fakes.real_sweeps import WORKS, here

BATCH = 2
SIDE, CHANNELS = 64, 64
CONVOLUTION = 2 * SIDE**2 * 9 * CHANNELS**2  # of one image, a multiply-add being 2; its input needs no gradient
IMAGES = {"one": 1, "batch": BATCH, "last": 1, "epoch": 7}
PROFILED = (*WORKS, "--batch-sizes", str(BATCH), "--profile", "kineto")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    done = here(*PROFILED, "--out", folder / "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "could not be made" not in done.stderr
    return folder / "run"


def table(path: Path, name: str) -> list[dict[str, str]]:
    with open(path / name, newline="") as file:
        return list(csv.DictReader(file))


def test_each_work_is_kept_as_a_whole_trace_with_its_checksum(path):
    data = read_run(path)
    (run,) = data.runs
    assert (run.profile, data.problems, run.profiled) == ("kineto", [], ("one", "batch", "last"))
    for work in run.profiled:
        file = recording_file(run.cell_id, run.attempt, work, "kineto")
        assert run.committed[file][0] == 1
        events = json.loads(gzip.decompress((path / file).read_bytes()))["traceEvents"]
        assert sum(event.get("name") == "flopledger.step" for event in events) >= 2, "the untimed step is in it, too"


def test_cleaned_counts_are_the_exact_ones(path):
    rows = {(row["source"], row["work"], row["phase"]): row for row in table(path, "cleaned/profile_counts.csv")}
    assert {source for source, _, _ in rows} == {"torch_profiler", "kineto"}
    for work, images in IMAGES.items():
        for phase in ("forward", "backward"):
            row = rows["kineto", work, phase]
            assert (row["status"], int(row["cleaned_flop"])) == ("ok", images * CONVOLUTION)
            assert row["cleaned_flop"] == rows["torch_profiler", work, phase]["cleaned_flop"]
        assert rows["kineto", "batch", "forward"]["exact_flop"] == str(BATCH * CONVOLUTION)


def test_each_method_has_a_numerator_of_its_own_beside_the_profilers(path):
    rows = [row for row in table(path, "utilization.csv") if row["numerator_source"] == "kineto"]
    assert {row["method"]: int(row["model_flop"]) for row in rows} == {
        method: 2 * IMAGES[method] * CONVOLUTION for method in ("one", "batch", "epoch")
    }
    theirs = [row for row in table(path, "utilization.csv") if row["numerator_source"] == "torch_profiler"]
    assert [row["utilization_ratio"] for row in rows] == [row["utilization_ratio"] for row in theirs]
    ratios = [row for row in table(path, "cleaned/ratios.csv") if (row["source"], row["level"]) == ("kineto", "model")]
    assert {row["ratio"] for row in ratios} == {"1.0"}
    operations = gzip.decompress((path / "cleaned/profiled_operations.csv.gz").read_bytes()).decode().splitlines()
    products = [row for row in csv.DictReader(operations) if row["source"] == "kineto"]
    assert {(row["dtype"], row["kind"]) for row in products} == {("float32", "convolution")}
