"""Command, injected fault: `runners.characterize` on small models, and on their records without torch; its refusals."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reports.characterize import analyse
from reports.characterize_text import to_text
from results.records.characterization import FILES, RecordedStep
from runners import characterize as command
from runners.workers import step_tasks
from tests.support.fakes.commands import code_without, refused, running
from tests.support.made_up.made_up_characterization import together


def _half(data, numbers):
    return {
        name: tuple(row for row in rows if row.recording in numbers)
        for name, rows in vars(data).items()
    }  # fmt: skip


KEYS = [
    "name", "variant", "parameters", "step_time_s", "profiled_step_time_s", "groups", "unclassified_ratio",
    "types_for_90_percent",
]  # fmt: skip
BLOCKED = code_without("torch torchvision pynvml nvtx", "runners.characterize")

MODELS = "synthetic_convolution,synthetic_matmul"
SMALL = ["--size", "image_size=8,channels=4,width=16,depth=2", "--batch-sizes", "2", "--steps", "5"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    out = tmp_path_factory.mktemp("characterize") / "run"
    arguments = [
        "--models",
        MODELS,
        *SMALL,
        "--device",
        "cpu",
        "--threads",
        "1,2",
        "--modes",
        "training",
        "--out",
        str(out),
    ]
    return command.main([*arguments, "--format", "json"]), out


def test_two_workloads_are_recorded_and_every_file_written(recorded):
    code, out = recorded
    assert code == 0
    assert {*FILES, "groups.csv", "types.csv", "characterize.txt", "characterize.json"} <= {
        p.name for p in out.iterdir()
    }
    rows = list(csv.DictReader(io.StringIO((out / "recordings.csv").read_text())))
    assert [(row["mode"], row["why"]) for row in rows] == 2 * [
        ("training", "mix"), ("training", "threads"),
    ]  # fmt: skip
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["torch_version"] and float(row["took_s"]) > 0 for row in rows)
    for name in ("types", "likeness"):
        assert (out / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_document_has_exactly_the_promised_keys(recorded):
    document = json.loads((recorded[1] / "characterize.json").read_text())
    assert list(document) == ["workloads", "linkage"]
    for workload in document["workloads"]:
        assert list(workload) == KEYS
        assert sum(workload["groups"].values()) + workload["unclassified_ratio"] == pytest.approx(1)
        assert workload["unclassified_ratio"] <= 0.01
    assert document["workloads"][1]["parameters"] == 2 * 16 * 16


def test_it_is_told_again_without_torch(recorded):
    out = recorded[1]
    before = (out / "characterize.txt").read_bytes(), (out / "figures" / "types.png").read_bytes()
    for derived in ("characterize.txt", "groups.csv", "figures/types.png"):
        (out / derived).unlink()
    arguments = [sys.executable, "-c", BLOCKED, str(out), "--format", "csv"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("recording,workload,variant,mode,device,threads,batch_size,group,share_ratio")
    told = (out / "characterize.txt").read_bytes()
    assert told.splitlines()[1:8] == before[0].splitlines()[1:8]
    assert (out / "figures" / "types.png").read_bytes() == before[1]


def test_a_workload_that_fails_costs_its_own_row(tmp_path, capsys):
    (tmp_path / "net.py").write_text(
        "import torch\ndef good(width=4):\n    return torch.nn.Linear(width, 2), (torch.ones(3, width),)\n"
        "class Bad(torch.nn.Linear):\n    def forward(self, x):\n        raise RuntimeError('no such road')\n"
        "def bad(width=4):\n    return Bad(width, 2), (torch.ones(3, width),)\n"
    )
    spec = f"{tmp_path}/net.py:good,{tmp_path}/net.py:bad"
    code = command.main(
        ["--models", spec, "--steps", "1", "--modes", "training", "--device", "cpu", "--format", "json"]
    )
    told = capsys.readouterr()
    assert code == 2
    assert "no such road" in told.err
    found = json.loads(told.out)["workloads"]
    assert found[0]["step_time_s"] is None or found[0]["groups"]["A"] is not None
    assert {one["name"].rpartition(":")[2]: one["step_time_s"] is None for one in found}["bad"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "alexnett"], "nearest: alexnet"),
        ([], "expected one of --models, --suite, --reproduce"),
        (["--models", "alexnet", "--suite", "post2021"], "expected one of --models"),
        (["--models", "alexnet", "--size", "image_size=8"], "at least 63 pixels"),
        (["--models", "deeplabv3_resnet50", "--batch-sizes", "1"], "batch of at least 2"),
        (["--models", "alexnet", "--device", "gpu"], "expected auto, cpu, cuda or cuda:N"),
        (["--models", "alexnet", "--threads", "0"], "at least 1"),
        (["--models", "alexnet", "--steps", "none"], "whole number"),
        (["/nowhere"], "which is no directory"),
        ([str(Path(__file__).parents[2])], "which has none"),
    ],
)
def test_what_cannot_be_asked_is_one_line(arguments, words, capsys):
    refused(running(command.main, capsys)(*arguments), words)


def test_a_directory_is_never_recorded_over_and_a_torn_one_is_said(recorded, tmp_path, capsys):
    run = running(command.main, capsys)
    refused(run("--models", "alexnet", "--out", recorded[1]), "expected a directory without recordings.csv")
    command.write_rows(together(), tmp_path)
    whole = (tmp_path / "operation_times.csv.gz").read_bytes()
    (tmp_path / "operation_times.csv.gz").write_bytes(whole[: len(whole) // 2])
    refused(run(tmp_path), "operation_times.csv.gz as runners.characterize writes it")


def test_the_paper_is_told_beside_ours():
    data = together()
    names = {"net": "fathom-alexnet@small", "talk": "seq2seq@small", "lost": "lost"}
    named = tuple(replace(one, workload=names[one.workload]) for one in data.recordings)
    text = to_text(analyse(type(data)(named, data.steps, data.times, data.costs), reproduce="fathom"))
    lines = [line.split() for line in text.splitlines()]
    assert ["alexnet", "ours", "5", "20", "60", "5", "10", "D,", "same"] in lines
    assert ["paper", "7", "3", "88", "D"] in lines
    assert "not recorded here: memnet, speech, autoenc, residual, vgg, deepq" in text


def test_a_slow_step_is_not_among_those_that_costs_take_their_times_from():
    lengths = [9.0, 1.3, 50.0, 1.1, 0.9, 0.2, 1.2, 9.0]
    steps = [RecordedStep(recording=0, part="profiled", step=place, time_s=time) for place, time in enumerate(lengths)]
    plain = [RecordedStep(recording=0, part="plain", step=place, time_s=1.15) for place in range(8)]
    assert step_tasks._usual([*plain, *steps]) == [1, 3, 6]  # median of 1.3 50 1.1 0.9 0.2 1.2: 1.15
    assert step_tasks._usual(steps[:1]) == [0]


def test_recordings_of_two_directories_are_told_together_and_kept_in_a_third(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("reports.characterize.figures", lambda _seen: {})
    data = together()
    nets, others = (replace(data, **one_half) for one_half in (_half(data, {0, 1, 2}), _half(data, {3, 4})))
    command.write_rows(nets, tmp_path / "nets")
    command.write_rows(others, tmp_path / "others")
    given = [str(tmp_path / "nets"), str(tmp_path / "others")]
    assert command.main([*given, "--out", str(tmp_path / "all"), "--format", "json"]) == 1  # "lost" was not recorded
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["workloads"]] == ["net", "talk", "lost"]
    lost = told["workloads"][-1]
    assert (lost["step_time_s"], lost["groups"]["A"]) == (None, None)
    assert len(told["linkage"]) == 1
    assert command.read_rows(tmp_path / "all") == data
    words = "expected recordings that differ, got net recorded the same way in"
    refused(running(command.main, capsys)(*given, given[0]), words)
