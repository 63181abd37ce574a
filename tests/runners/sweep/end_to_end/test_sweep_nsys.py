"""A sweep with --profile nsys and a stand-in for Nsight Systems: recordings, commands, counts, what a fault costs.

On a CPU the sweep would refuse; here it is told not to. Everything else is real: the command line, the process that
nsys starts, which builds the model and runs its step, the reading, the report.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from results.store.layout import command_file, recording_file
from results.store.store import read_run
from tests.runners.sweep.end_to_end.test_sweep_end_to_end import WITHOUT_TORCH
from tests.support.fakes.fake_nsys import VERSION
from tests.support.fakes.real_sweeps import ENVIRON, ROOT, WORKS, Sweep, here, lives, sweep

BATCH = 2
CONVOLUTION = 2 * 64**2 * 9 * 64**2  # of one image, a multiply-add being 2; its input needs no gradient
IMAGES = {"one": 1, "batch": BATCH, "last": 1, "epoch": 7}
PROFILED = (*WORKS, "--batch-sizes", str(BATCH), "--profile", "nsys")
ON_A_CPU = WITHOUT_TORCH.replace(
    "from runners.sweep.command import main",
    "from runners.sweep import nsight\n"
    "nsight.check = lambda cells: ' '.join(nsight.nsight.find()) if list(cells) else ''\n"
    "from runners.sweep.command import main",
)


def environ(folder: Path, mode: str = "") -> dict[str, str]:
    """With an nsys on PATH, and a folder for temporary files that is empty before and must be afterwards."""
    tools, temporary = folder / "tools", folder / "tmp"
    tools.mkdir(exist_ok=True)
    temporary.mkdir(exist_ok=True)
    script = tools / "nsys"
    fake = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "fakes" / "fake_nsys.py")])
    script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {fake} "$@"\n')
    script.chmod(0o755)
    paths = {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    return {**ENVIRON, **paths, "FAKE_NSYS": mode, "FAKE_NSYS_SAW": str(folder / "saw")}


def swept(folder: Path, mode: str = "", *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ON_A_CPU, *PROFILED, "--out", str(folder / "run"), *more]
    return subprocess.run(
        command, cwd=folder, env=environ(folder, mode), capture_output=True, text=True, timeout=240, check=False
    )


def table(path: Path, name: str) -> list[dict[str, str]]:
    with open(path / name, newline="") as file:
        return list(csv.DictReader(file))


def left(folder: Path) -> list[str]:
    """What our own programs left among the temporary files."""
    return [name for name in os.listdir(folder / "tmp") if name.startswith(("nsys-", "worker-", "kineto-"))]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("sweep")
    answer = swept(folder)
    assert answer.returncode == 0, answer.stderr
    assert "Traceback" not in answer.stderr
    return folder, answer.stderr


@pytest.mark.survival
def test_each_work_is_recorded_by_a_command_that_is_said_and_kept(done):
    folder, said = done
    data = read_run(folder / "run")
    (run,) = data.runs
    assert (run.profile, data.problems, run.profiled, dict(run.unprofiled)) == (
        "nsys",
        [],
        ("one", "batch", "last"),
        {},
    )
    assert f"{VERSION}" in said
    assert "lack a work" not in said
    saw = [json.loads(line) for line in (folder / "saw").read_text().splitlines()]
    assert [call["code"] for call in saw] == [0, 0, 0], "the step ran each time"
    for work, call in zip(run.profiled, saw, strict=True):
        file = recording_file(run.cell_id, run.attempt, work, "nsys")
        assert file.endswith(f"-1-{work}.nsys.sqlite.gz")
        assert gzip.decompress((folder / "run" / file).read_bytes()).startswith(b"SQLite format 3\0")
        command = command_file(run.cell_id, run.attempt, work, "nsys")
        assert {file, command} <= set(run.committed)
        kept = (folder / "run" / command).read_text().strip()
        assert kept in said
        words = shlex.split(kept)
        assert words[1:] == call["arguments"]
        assert words[-2:] == ["--work", work]
        assert {"--trace=cuda,nvtx", "--capture-range=cudaProfilerApi", "--export=sqlite"} <= set(words)
        assert json.loads(words[words.index("--cell") + 1])["batch_size"] == BATCH
        assert call["folder"].startswith(str(folder / "tmp" / "nsys-")), "nsys keeps its temporary files together"
    assert left(folder) == []


@pytest.mark.survival
def test_counts_are_the_exact_ones_and_what_was_found_twice_counts_once(done):
    path = done[0] / "run"
    rows = {(row["source"], row["work"], row["phase"]): row for row in table(path, "cleaned/profile_counts.csv")}
    assert {source for source, _, _ in rows} == {"torch_profiler", "nsys"}
    for work, images in IMAGES.items():
        for phase, found in {"forward": 2, "backward": 1}.items():
            row = rows["nsys", work, phase]
            counts = [int(row[f"{state}_flop"]) for state in ("found", "deduplicated", "cleaned")]
            assert counts == [found * images * CONVOLUTION, *[images * CONVOLUTION] * 2], (work, phase)
            assert row["cleaned_flop"] == rows["torch_profiler", work, phase]["cleaned_flop"]


@pytest.mark.survival
def test_it_is_a_numerator_of_its_own_wherever_kineto_is_one(done):
    path = done[0] / "run"
    rows = [row for row in table(path, "utilization.csv") if row["numerator_source"] == "nsys"]
    assert {row["method"]: int(row["model_flop"]) for row in rows} == {
        method: 2 * IMAGES[method] * CONVOLUTION for method in ("one", "batch", "epoch")
    }
    theirs = [row for row in table(path, "utilization.csv") if row["numerator_source"] == "torch_profiler"]
    assert [row["utilization_ratio"] for row in rows] == [row["utilization_ratio"] for row in theirs]
    ratios = [row for row in table(path, "cleaned/ratios.csv") if (row["source"], row["level"]) == ("nsys", "model")]
    assert {row["ratio"] for row in ratios if row["state"] == "cleaned"} == {"1.0"}
    assert "recorded by nsys" in (path / "figures" / "profile_states.svg").read_text()
    log = [row for row in table(path, "cleaned/cleaning_log.csv") if row["file"].endswith("-one.nsys.sqlite.gz")]
    assert any(row["reason"].startswith("multi_kernel") for row in log)


@pytest.mark.survival
def test_the_report_is_the_same_without_torch(done, tmp_path):
    path = done[0] / "run"
    again = here(path, "--out", tmp_path / "again", "--format", "csv", cwd=tmp_path, command="report")
    assert again.returncode == 0, again.stderr
    for name in ("utilization.csv", "cleaned/profile_counts.csv", "cleaned/ratios.csv", "cleaned/cleaning_log.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (path / name).read_bytes()


@pytest.mark.slow
def test_a_finished_run_is_gone_on_with_where_there_is_no_nsys(done, tmp_path):
    shutil.copytree(done[0] / "run", tmp_path / "run")
    again = sweep("--resume", tmp_path / "run", cwd=tmp_path)
    assert (again.returncode, "1 of 1 cells are there already" in again.stderr) == (0, True), again.stderr


@pytest.mark.slow
def test_another_recorder_is_another_cell_of_the_same_run(done, tmp_path):
    shutil.copytree(done[0] / "run", tmp_path / "run")
    again = sweep("--resume", tmp_path / "run", "--profile", "kineto", "--methods", "batch", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert sorted(run.profile for run in read_run(tmp_path / "run").runs) == ["kineto", "nsys"]


def test_without_a_device_it_is_refused_before_anything_is_made(tmp_path):
    refused = here(*PROFILED, "--out", tmp_path / "run", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: --profile nsys: expected a CUDA device, whose kernels Nsight Systems records, got cpu; "
        "--profile kineto records there\n"
    )
    assert not (tmp_path / "run").exists()


LOST = {
    "one": ("fail", "nsys ended with status 7"),
    "batch": ("cut", "its export: the SQLite file is cut"),
    "last": ("nothing", "nsys ended, and left no export"),
}


@pytest.mark.slow
def test_a_fault_of_nsys_costs_one_works_recording(tmp_path):
    answer = swept(tmp_path, ",".join(f"{work}:{mode}" for work, (mode, _) in LOST.items()))
    assert answer.returncode == 0, answer.stderr
    lines = answer.stderr.splitlines()
    assert sum("1 of 1 cells lack a work that was asked for: its rows say why" in line for line in lines) == 1
    (run,) = read_run(tmp_path / "run").runs
    assert (run.status, run.profiled) == ("ok", tuple(LOST))
    assert set(run.unprofiled) == {f"nsys {work}" for work in LOST}
    rows = table(tmp_path / "run", "cleaned/profile_counts.csv")
    assert {row["status"] for row in rows if row["source"] == "torch_profiler"} == {"ok"}
    assert {row["status"] for row in rows if row["source"] == "nsys"} == {"unavailable"}
    for work, (_, reason) in LOST.items():
        assert run.unprofiled[f"nsys {work}"].startswith(reason)
        said = [row["reason"] for row in rows if (row["source"], row["work"]) == ("nsys", work)]
        assert len(said) == 2
        assert all(reason in words for words in said)
    assert left(tmp_path) == []


def stray(folder: Path) -> list[psutil.Process]:
    """Processes that this folder's nsys started in a session of their own."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "a stray of" in words and any(str(folder) in word for word in words) and lives(process):
            found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_stopped_while_nsys_records(tmp_path, number, monkeypatch):
    settings = environ(tmp_path, "one:hang")
    monkeypatch.setattr("real_sweeps.ENVIRON", settings)
    monkeypatch.setattr(
        "tests.support.fakes.real_sweeps.command", lambda *words: [sys.executable, "-c", ON_A_CPU, *map(str, words)]
    )
    with Sweep(*PROFILED, "--out", tmp_path / "run", cwd=tmp_path) as running:
        running.wait_for("runners.nvtx_step")
        end = 200
        while not stray(tmp_path) and end:
            running.run_for(0.1)
            end -= 1
        assert stray(tmp_path), "it hangs"
        running.send(number)
        assert running.end() == 128 + number
    assert stray(tmp_path) == []
    assert left(tmp_path) == []


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nsys") is None, reason="no CUDA device, or no nsys on PATH")
def test_nsight_systems_itself_counts_what_torchs_profiler_counts(tmp_path):
    """The real thing: needs a CUDA device and Nsight Systems. ResNet-18, whose strides the ranges do not tell."""
    words = ("--device", "cuda", "--quick", "--models", "resnet18", "--batch-sizes", "4", "--size", "image_size=64")
    words = (*words, "--methods", "one,batch,epoch,exact", "--epoch-images", "9", "--precisions", "amp-bf16")
    answer = sweep(*words, "--profile", "nsys", "--out", tmp_path / "run", cwd=tmp_path, timeout_s=500)
    assert answer.returncode == 0, answer.stderr
    (run,) = read_run(tmp_path / "run").runs
    assert dict(run.unprofiled) == {}
    rows = {
        (row["source"], row["work"], row["phase"]): row for row in table(tmp_path / "run", "cleaned/profile_counts.csv")
    }
    for work in ("one", "batch", "last", "epoch"):
        for phase in ("forward", "backward"):
            assert rows["nsys", work, phase]["cleaned_flop"] == rows["torch_profiler", work, phase]["cleaned_flop"]
    text = gzip.decompress((tmp_path / "run" / "cleaned/profiled_operations.csv.gz").read_bytes()).decode()
    modules = list(csv.DictReader(text.splitlines()))
    assert {row["module"] for row in modules if row["source"] == "nsys"} == {
        row["module"] for row in modules if row["source"] == "torch_profiler"
    }
