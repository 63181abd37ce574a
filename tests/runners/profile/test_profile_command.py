"""Command, definition, injected fault: `runners.profile` with a made-up worker, and for real on this CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reports.shared.layout import to_csv
from results.records.cell import Ceiling
from runners import profile as command
from runners.cli.exits import Mistake
from runners.workers import pool
from runners.workers.devices import ProbeResult
from runners.workers.pool import WorkerFault
from runners.workers.pool import run as worker_run
from tests.support.fakes.commands import refused, running
from tests.support.made_up.made_up_profile import PROFILE, profile

ROOT = Path(__file__).parents[3]

PROBED = ProbeResult(
    device="cpu", properties={"name": "Made-up 9000", "threads": 2}, refused={"tf32": "tf32 needs a GPU"}
)

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
        self.head = torch.nn.Linear({inside}, 4)

    def forward(self, x):
        return self.head(self.body(x))

    def generate(self, x):
        return [self(x) for _ in range(3)]

def build():
    return Net()
"""


class Scripted:
    """A worker that gives the made-up profile. answers: task → what to answer instead, or to raise."""

    answers: dict[str, Any] = {}
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def __init__(self, name: str, quiet: bool = True) -> None:
        pass

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        name = task.partition(":")[2]
        self.asked.append((name, arguments))
        answer = self.answers.get(name, {"probe": PROBED, "measure_machine": [], "profile": PROFILE}[name])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop(self) -> None:
        self.asked.append(("stop", ()))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """The command's worker, and nothing that is started."""
    monkeypatch.setattr(Scripted, "answers", {})
    monkeypatch.setattr(Scripted, "asked", [])
    monkeypatch.setattr(pool, "Worker", Scripted)
    monkeypatch.setattr(pool, "prepare", lambda: None)
    return Scripted


def request_of(worker: type[Scripted]) -> dict[str, Any]:
    """The options that the worker gets, and the device."""
    (arguments,) = [arguments for name, arguments in worker.asked if name == "profile"]
    return {**vars(arguments[0]), "device": arguments[1]}


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_the_options_become_a_request(worker: type[Scripted]) -> None:
    words = "resnet18 --batch-size 4 --steps 3 --warm-up 1 --compare-steps 0 --mode forward --optimizer adam"
    words += " --ignore-modules Dropout,head --size image_size=96 --layout channels_last --ceiling-budget 0"
    assert command.main(words.split()) == 0
    expected = {
        "model": "resnet18", "batch_size": 4, "device": "cpu", "precision": "fp32", "mode": "forward",
        "optimizer": "adam", "layout": "channels_last", "steps": 3, "warm_up": 1, "compare_steps": 0,
        "ignore_modules": ("Dropout", "head"), "hyper": {"image_size": 96},
    }  # fmt: skip
    request = request_of(worker)
    assert {name: request[name] for name in expected} == expected
    assert [name for name, _ in worker.asked] == ["probe", "profile", "stop"]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"enabled": True, "profile_step": 3, "module_depth": 2}, {"warm_up": 3, "module_depth": 2}),
        ({"start_step": 5, "end_step": 8, "top_modules": 4}, {"warm_up": 5, "steps": 3, "top_modules": 4}),
        ({"start_step": 5}, {"warm_up": 5, "steps": 1}),
        ({"end_step": 3}, {"warm_up": 1, "steps": 2}),
        ({"detailed": False, "recompute_fwd_factor": 1}, {"detailed": False, "recompute_fwd_factor": 1.0}),
        ({"output_file": None, "module_depth": -1}, {"module_depth": -1}),
        ({"output_file": "a.txt"}, {"output_file": Path("a.txt")}),
        ({}, {}),
    ],
)
def test_deepspeeds_settings(tmp_path: Path, section: dict[str, Any], expected: dict[str, Any]) -> None:
    """The whole configuration, or the section alone."""
    for name, content in (("whole.json", {"train_batch_size": 8, "flops_profiler": section}), ("part.json", section)):
        file = tmp_path / name
        file.write_text(json.dumps(content))
        assert command.read(file) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"flops_profiler": {"module_dept": 1}}', "unknown key"),
        ('{"flops_profiler": {"module_dept": 1}}', "nearest module_depth"),
        ('{"flops_profiler": {"top_modules": 0}}', "top_modules: expected a whole number of at least 1, got 0"),
        ('{"flops_profiler": {"detailed": 1}}', "detailed: expected true or false, got 1"),
        ('{"flops_profiler": {"profile_step": true}}', "profile_step: expected a whole number of at least 0, got true"),
        ('{"flops_profiler": {"start_step": 5, "end_step": 5}}', "end_step: expected a step after 5"),
        ('{"flops_profiler": [1]}', "expected an object with flops_profiler, got list"),
        ("[1]", "expected an object with flops_profiler, got list"),
        (
            '{"fp16": {"enabled": true}, "train_batch_size": 8}',
            "expected a section flops_profiler, got fp16, train_bat",
        ),
        ('{"flop_profiler": {"enabled": true}}', "expected a section flops_profiler, got flop_profiler"),
        ("{", "expected a JSON file"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "ds.json"
    file.write_text(content)
    with pytest.raises(Mistake, match=r"ds\.json") as fault:
        command.read(file)
    assert said in str(fault.value)


# --- what is told ----------------------------------------------------------------------------------------------------


def test_files(worker: type[Scripted], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "new" / "out", tmp_path / "report.txt"
    words = ["resnet18", "--ceiling-budget", "0", "--out", str(out), "--output-file", str(report)]
    assert command.main(words) == 0
    assert capsys.readouterr().out == ""
    assert {path.name for path in out.iterdir()} == {
        "profile.html",
        "profile.json",
        "profile.txt",
        "modules.csv",
        "operations.csv",
    }
    assert report.read_text() == (out / "profile.txt").read_text()


def test_ceilings_of_a_file_are_used(
    worker: type[Scripted], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No search; the peak is the file's: 30 kFLOP at it ÷ 25 ms."""
    row = Ceiling(
        session="", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="64x64x64", threads=2,
        median_s=1e-3, flop_per_s=6e6,
    )  # fmt: skip
    file = tmp_path / "ceilings.csv"
    file.write_text(to_csv([row], Ceiling))
    assert command.main(["resnet18", "--ceilings", str(file), "--format", "json"]) == 0
    assert [name for name, _ in worker.asked] == ["probe", "profile", "stop"]
    step = json.loads(capsys.readouterr().out)["step"]
    assert step["utilization_ratio"] == pytest.approx(30_000 / 6e6 / 0.025)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resnet1"], "nearest"),
        (["resnet18", "--device", "gpu"], "--device: expected auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["resnet18", "--device", "cpu:"], "--device"),
        (["resnet18", "--precision", "bf17"], "--precision"),
        (["resnet18", "--precision", "tf32"], "tf32 needs a GPU"),
        (["resnet18", "--steps", "0"], "at least 1"),
        (
            ["resnet18", "--world-size", "6", "--model-parallel", "4"],
            "expected a multiple of --model-parallel 4, got 6",
        ),
        (["resnet18", "--optimizer", "lion"], "expected sgd"),
        (["resnet18", "--mode", "backward"], "expected train"),
        (["resnet18", "--ceilings", "/nowhere.csv"], "/nowhere.csv could not be read"),
        (["resnet18", "--config", "/nowhere.json"], "/nowhere.json"),
        (["resnet18", "--output-file", "/"], "expected a file"),
        (["resnet18", "--input", "3xx"], "3xx"),
        (["resnet18", "--depth", "1"], "nearest --module-depth"),
    ],
)
def test_mistakes_are_one_line(
    worker: type[Scripted], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(running(command.main, capsys)(*words), said)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (WorkerFault("timeout", "killed at its limit of 1 s"), 1),
        (WorkerFault("out_of_memory", "OutOfMemoryError: no"), 1),
        (WorkerFault("crashed", "the worker died of SIGSEGV"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_how_a_worker_ends_is_how_the_command_ends(
    worker: type[Scripted], fault: Any, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.answers = {"profile": fault}
    answer = running(command.main, capsys)("resnet18", "--ceiling-budget", "0")
    refused(answer, "interrupted" if code == 130 else fault.reason, code=code)
    assert worker.asked[-1][0] == "stop"


def test_sums_that_do_not_add_up_fail(worker: type[Scripted], capsys: pytest.CaptureFixture[str]) -> None:
    """The report is there all the same."""
    worker.answers = {"profile": profile(step_times_s=(0.030,))}
    assert command.main(["resnet18", "--ceiling-budget", "0"]) == 1
    told = capsys.readouterr()
    assert "the parts are not the step: operations 26.000 ms + between them 2.000 ms is not step 30.000 ms" in told.err
    assert "body: Sequential" in told.out


# --- end to end ------------------------------------------------------------------------------------------------------


def net(folder: Path, inside: int = 16) -> str:
    (folder / "net.py").write_text(NET.format(inside=inside))
    return f"{folder / 'net.py'}:build"


def test_a_model_of_ones_own_end_to_end(tmp_path: Path) -> None:
    """Two linear layers at batch 4: forward 2·4·(8·16 + 16·4) = 1536 FLOP; backward twice that less the input's
    gradient, 2·4·8·16 = 1024: 2048. Parameters 8·16 + 16 + 16·4 + 4 = 212."""
    words = ["-m", "runners.profile", net(tmp_path), "--input", "8", "--batch-size", "4", "--steps", "2"]
    words += ["--compare-steps", "2", "--ceiling-budget", "1", "--format", "json", "--device", "cpu"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    step = found["step"]
    assert (step["forward_flop"], step["backward_flop"], step["parameters"]) == (1536, 2048, 212)
    assert step["conserved"]
    assert [each["module"] for each in found["modules"]] == ["", "body", "body.0", "body.1", "head"]
    timed = sum(each["time_s"] or 0 for each in found["operations"])
    assert timed + found["between_operations_time_s"] == pytest.approx(step["time_s"])
    assert 0 < step["utilization_ratio"] <= step["attainable_ratio"]
    assert all(each["group"] is not None for each in found["operations"] if each["read_bytes"] + each["written_bytes"])


def test_a_model_that_fails_says_where(tmp_path: Path) -> None:
    """As the worker answers it."""
    options = command.merged(command.parser().parse_args([net(tmp_path, inside=15), "--input", "8"]))
    fault = worker_run("runners.workers.step_tasks:profile", (options, "cpu"))
    assert fault.status == "invalid"
    assert "module head (Linear), which got (1, 16)" in fault.reason


def test_without_ceilings_there_is_a_profile_and_a_warning(
    worker: type[Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    worker.answers = {"measure_machine": WorkerFault("crashed", "the worker died")}
    assert command.main(["resnet18"]) == 0
    told = capsys.readouterr()
    assert told.err == "warning: no ceilings: the worker died\n"
    assert "no peak of fp32" in told.out


def test_defaults_and_a_search_for_ceilings(worker: type[Scripted]) -> None:
    assert command.main(["resnet18", "--ceiling-budget", "7"]) == 0
    request = request_of(worker)
    assert [request[name] for name in ("steps", "warm_up", "compare_steps", "batch_size")] == [5, 2, 4, 1]
    assert worker.asked[1] == ("measure_machine", ("cpu", ("fp32",), 7.0))
