"""Command, injected fault: `runners.ceiling` on this CPU, and with a made-up worker that fails or is interrupted."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.roofline import machine_of
from measure.ceiling.trials import Move, Trial, moves, sweep
from results.records.cell import Ceiling
from runners import ceiling as ceiling_command
from runners.ceiling import search
from runners.workers.devices import ProbeResult
from runners.workers.pool import WorkerFault
from tests.support.fakes.commands import refused, running

ROOT = Path(__file__).parents[3]

PROBED = ProbeResult(
    device="cpu",
    environment={"torch": "2.15.0"},
    properties={"device": "cpu", "name": "Some CPU", "threads": 2},
    refused={"tf32": "no tf32 here"},
)


class Scripted:
    """A worker that answers as a device of round rates would. answers: task → what to answer instead, or to raise."""

    def __init__(self, answers: dict[str, Any] | None = None, name: str = "", quiet: bool = True) -> None:
        self.answers = answers or {}
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.stopped = 0

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        name = task.partition(":")[2]
        if name == "timed":
            name = {Trial: "kernel", Move: "copy", str: "launch"}[type(arguments[1])]
        self.asked.append((name, arguments))
        answer = self.answers.get(name)
        if callable(answer):
            answer = answer(self)
        if answer is not None:
            return answer
        return getattr(self, f"_{name}")(*arguments)

    def stop(self) -> None:
        self.stopped += 1

    def count(self, name: str) -> int:
        return sum(task == name for task, _ in self.asked)

    def _probe(self, device: str) -> ProbeResult:
        return PROBED

    def _plan(self, blank: Ceiling) -> list[Any]:
        return sweep("cpu", 200e9)

    def _copies_and_views(self, device: str) -> tuple[list[Any], tuple[str, ...]]:
        return moves("cpu", 32 << 20, 64 << 30), ("call",)

    def _kernel(self, blank: Ceiling, trial: Any, share_s: float) -> Ceiling:
        times = {"median_s": 0.01, "mean_s": 0.01, "best_s": 0.01, "repeats": 3}
        return replace(blank, flop=trial.flop, flop_per_s=trial.flop / 0.01, **times)

    def _copy(self, blank: Ceiling, move: Any, share_s: float) -> Ceiling:
        rate = {"moved_bytes": move.moved_bytes, "bytes_per_s": move.moved_bytes / 0.01}
        return replace(blank, **rate, median_s=0.01, mean_s=0.01, best_s=0.01)

    def _launch(self, blank: Ceiling, view: str, share_s: float) -> Ceiling:
        return replace(blank, median_s=2e-6, mean_s=2e-6, best_s=1e-6)


@pytest.fixture
def run(monkeypatch, capsys):
    """The command with a made-up worker: (exit code, stdout, stderr)."""
    monkeypatch.setattr(ceiling_command, "prepare", lambda: None)

    def command(worker: Scripted, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(ceiling_command, "Worker", lambda *_, **__: worker)
        return running(ceiling_command.main, capsys)(*arguments)

    return command


# --- the search ---


def test_faults_are_rows_and_the_search_goes_on():
    worker = Scripted(
        {"kernel": lambda w: WorkerFault("crashed", "the worker died of SIGSEGV") if w.count("kernel") == 2 else None}
    )
    blank = Ceiling(session="", device="cpu", precision="", unit="", operation="", shape="")
    failed = [row for row in search(worker, blank, ("fp32",), (None,), 60.0) if row.status != "ok"]
    assert [(row.status, row.reason, row.operation, row.unit) for row in failed] == [
        ("crashed", "the worker died of SIGSEGV", "convolution", "fp32")
    ]
    assert worker.count("launch") == 1


# --- the command ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--precisions", "tf33"), "got 'tf33', nearest tf32"),
        (("--precisions", "tf32"), "--precisions: no tf32 here; expected of fp32, amp-bf16, amp-fp16, got tf32"),
        (("--threads", "0"), "whole number of at least 1"),
        (("--device", "cuda", "--threads", "2"), "--threads: expected a CPU, whose threads it sets, got cuda"),
        (("--device", "gpu"), "--device: expected auto, cpu, cuda or cuda:N, got 'gpu'"),
        (("--device", "cpu:1"), "got 'cpu:1'"),
        (("--device", "cuda:"), "got 'cuda:'"),
        (("--budget", "0"), "--budget"),
    ],
)
def test_a_mistake_is_one_line(run, arguments: tuple[str, ...], said: str):
    refused(run(Scripted(), *arguments), said)


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"plan": WorkerFault("crashed", "dead")}, 1),
        ({"copies_and_views": WorkerFault("crashed", "dead")}, 1),
        ({"launch": WorkerFault("unavailable", "no")}, 1),
        ({"kernel": lambda w: WorkerFault("out_of_memory", "large") if w.count("kernel") == 5 else None}, 0),
        ({"kernel": lambda w: WorkerFault("timeout", "hung") if w.count("kernel") == 5 else None}, 1),
    ],
)
def test_exit_codes(run, answers: dict[str, Any], code: int):
    assert run(Scripted(answers), "--precisions", "fp32")[0] == code


def interrupt(after: int) -> Any:
    def answer(worker: Scripted) -> None:
        if worker.count("kernel") > after:
            raise KeyboardInterrupt

    return answer


def test_ctrl_c_keeps_what_was_measured(run, tmp_path: Path):
    worker = Scripted({"kernel": interrupt(after=5)})
    code, out, _ = run(worker, "--precisions", "fp32", "--out", str(tmp_path / "new"), "--format", "json")
    assert code == 130
    assert len(json.loads(out)["rows"]) == 5
    assert json.loads(out)["notes"][0].startswith("interrupted")
    assert len(ceiling_command.read_ceilings(tmp_path / "new" / "ceilings.csv")) == 5
    assert worker.stopped == 1


# --- files ---


def test_ceilings_of_a_run_before_version_9_are_read_under_their_former_names():
    path = ROOT / "results/published/amd-epyc-2-cores-2026-11-29/ceilings.csv"
    names, *lines = path.read_text(encoding="utf-8").splitlines()
    assert names.startswith("sitting,device,")
    assert [row.session for row in ceiling_command.read_ceilings(path)] == [line.partition(",")[0] for line in lines]


def test_the_real_thing_without_torch_in_the_parent(tmp_path: Path):
    code = "import sys; from runners.ceiling import main; code = main(sys.argv[1:])\n"
    code += "print('torch' in sys.modules, file=sys.stderr); sys.exit(code)"
    arguments = ["--budget", "1", "--precisions", "fp32", "--threads", "1", "--format", "json", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr.splitlines()[-1] == "False", done.stderr
    found = json.loads(done.stdout)
    ok = {row["operation"] for row in found["rows"] if row["status"] == "ok"}
    assert "matmul" in ok  # a busy machine has no time for convolutions
    assert all(0 < row["best_s"] <= row["median_s"] for row in found["rows"] if row["status"] == "ok")
    machine = machine_of(ceiling_command.read_ceilings(tmp_path / "ceilings.csv"), "cpu", found["device_name"])
    assert 1e8 < machine.peak_by_unit["fp32"] < 1e14


def test_threads_are_torchs_own_number_unless_said(run):
    worker = Scripted()
    assert run(worker, "--budget", "60", "--precisions", "fp32")[0] == 0
    assert {row[1][0].threads for row in worker.asked if row[0] == "kernel"} == {2}
