"""Command, known answer: a sweep with --profile nsys and a stand-in for Nsight Systems keeps recordings and counts.

On a CPU the sweep would refuse; here it is told not to. Everything else is real: the command line, the process that
nsys starts, which builds the model and runs its step, the reading, the report.
"""

import csv
import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from results.store.layout import COMMAND, recording_file
from results.store.store import read_run
from tests.support.fakes.commands import code_without
from tests.support.fakes.real_sweeps import ENVIRON, ROOT, WORKS, sweep

BATCH = 2
CONVOLUTION = 2 * 64**2 * 9 * 64**2  # of one image, a multiply-add being 2; its input needs no gradient
IMAGES = {"one": 1, "batch": BATCH, "last": 1, "epoch": 7}
PROFILED = (*WORKS, "--batch-sizes", str(BATCH), "--profile", "nsys")
ON_A_CPU = code_without("torch torchvision", "runners.sweep.__main__", warnings=True).replace(
    "from runners.sweep.__main__ import main",
    "from runners.sweep import nsight\n"
    "nsight.check = lambda cells: ' '.join(nsight.nsight.find()) if list(cells) else ''\n"
    "from runners.sweep.__main__ import main",
)


def environ(folder: Path) -> dict[str, str]:
    """With an nsys on PATH, and a folder for temporary files that is empty before and must be afterwards."""
    tools, temporary = folder / "tools", folder / "tmp"
    tools.mkdir(exist_ok=True)
    temporary.mkdir(exist_ok=True)
    script = tools / "nsys"
    fake = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "fakes" / "fake_nsys.py")])
    script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {fake} "$@"\n')
    script.chmod(0o755)
    paths = {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    return {**ENVIRON, **paths, "FAKE_NSYS": "", "FAKE_NSYS_SAW": str(folder / "saw")}


def table(path: Path, name: str) -> list[dict[str, str]]:
    with open(path / name, newline="") as file:
        return list(csv.DictReader(file))


def left(folder: Path) -> list[str]:
    """What our own programs left among the temporary files."""
    return [name for name in os.listdir(folder / "tmp") if name.startswith(("nsys-", "worker-", "kineto-"))]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("sweep")
    command = [sys.executable, "-c", ON_A_CPU, *PROFILED, "--out", str(folder / "run")]
    answer = subprocess.run(
        command, cwd=folder, env=environ(folder), capture_output=True, text=True, timeout=240, check=False
    )
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
    saw = [json.loads(line) for line in (folder / "saw").read_text().splitlines()]
    assert [call["code"] for call in saw] == [0, 0, 0], "the step ran each time"
    for work, call in zip(run.profiled, saw, strict=True):
        file = recording_file(run.cell_id, run.attempt, work, "nsys")
        assert gzip.decompress((folder / "run" / file).read_bytes()).startswith(b"SQLite format 3\0")
        command = recording_file(run.cell_id, run.attempt, work, "nsys", COMMAND)
        assert {file, command} <= set(run.committed)
        kept = (folder / "run" / command).read_text().strip()
        assert kept in said
        words = shlex.split(kept)
        assert words[1:] == call["arguments"]
        assert words[-1] == work
        assert {"--trace=cuda,nvtx", "--capture-range=cudaProfilerApi", "--export=sqlite"} <= set(words)
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
