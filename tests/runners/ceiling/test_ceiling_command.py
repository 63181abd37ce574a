"""`python -m runners.ceiling`: end to end on this CPU; with a made-up worker what is asked, kept, told and returned."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.profile.machine import machine_of
from measure.ceiling.trials import ESSENTIAL, moves, sweep
from measure.device.environment import DeviceProperties, Environment, TorchFacts
from results.records.rows import header
from results.records.samples import Ceiling
from runners.ceiling import command as ceiling_command
from runners.ceiling import output as ceiling_output
from runners.ceiling import search as ceiling_search
from runners.ceiling.search import Search
from runners.workers import pool
from runners.workers.devices import ProbeResult
from runners.workers.worker import WorkerFault
from tests.support.made_up import made_up_ceilings

ROOT = Path(__file__).parents[3]

PROBED = ProbeResult(
    device="cpu",
    environment=Environment(torch=TorchFacts(torch="2.15.0")),
    properties=DeviceProperties(device="cpu", name="Some CPU", threads=2),
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

    def _copies(self, device: str) -> list[Any]:
        return moves("cpu", 32 << 20, 64 << 30)

    def _views(self, device: str) -> tuple[str, ...]:
        return ("call",)

    def _kernel(self, blank: Ceiling, trial: Any, share_s: float) -> Ceiling:
        times = {"median_s": 0.01, "mean_s": 0.01, "best_s": 0.01, "repeats": 3}
        return replace(blank, flop=trial.flop, flop_per_s=trial.flop / 0.01, **times)

    def _copy(self, blank: Ceiling, move: Any, share_s: float) -> Ceiling:
        rate = {"moved_bytes": move.moved_bytes, "bytes_per_s": move.moved_bytes / 0.01}
        return replace(blank, **rate, median_s=0.01, mean_s=0.01, best_s=0.01)

    def _launch(self, blank: Ceiling, view: str, share_s: float) -> Ceiling:
        return replace(blank, median_s=2e-6, mean_s=2e-6, best_s=1e-6)


def search(worker: Scripted, device: str = "cpu") -> Search:
    return Search(worker, device, "Some CPU", lambda words: None)


@pytest.fixture
def run(monkeypatch, capsys):
    """The command with a made-up worker: (exit code, stdout, stderr)."""
    monkeypatch.setattr(pool, "prepare", lambda: None)

    def command(worker: Scripted, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(pool, "Worker", lambda *_, **__: worker)
        try:
            code = ceiling_command.main(arguments)
        except SystemExit as ended:
            code = int(str(ended.code))
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


# --- the search ---


def test_what_a_profile_needs_is_asked_for_first():
    worker = Scripted()
    found = search(worker)
    found.run(("fp32", "amp-bf16"), (1, 2), 60.0)
    rows = found.rows
    kinds = [(row.precision, row.threads) for row in rows if row.operation in ("matmul", "convolution")]
    parts = [("fp32", 1), ("amp-bf16", 1), ("fp32", 2), ("amp-bf16", 2)]
    assert kinds[: 4 * ESSENTIAL] == [part for part in parts for _ in range(ESSENTIAL)]
    assert [row.operation for row in rows[4 * ESSENTIAL :]][:5] == ["call", "copy", "triad", "copy", "triad"]
    assert {row.family for row in rows[-16:]} == {"cache"}
    assert len(rows) == 4 * len(sweep("cpu", 200e9)) + 2 * (1 + 12)
    assert {row.unit for row in rows if row.precision == "amp-bf16"} == {"bf16"}
    assert {(row.device, row.device_name, row.status) for row in rows} == {("cpu", "Some CPU", "ok")}
    shares = [arguments[2] for task, arguments in worker.asked if task in ("kernel", "copy", "launch")]
    assert shares[0] == pytest.approx(60 / len(rows), rel=0.05)
    assert shares[-1] == pytest.approx(60, rel=0.05)  # what nobody used is the last one's


def test_a_spent_budget_asks_for_nothing_more(monkeypatch):
    monkeypatch.setattr(ceiling_search.Stopwatch, "elapsed_s", 5.0)
    worker = Scripted()
    found = search(worker)
    found.run(("fp32",), (None,), 5.0)
    assert worker.count("kernel") == worker.count("copy") == worker.count("launch") == 0
    assert {row.status for row in found.rows} == {"unavailable"}
    assert {row.reason for row in found.rows} == {"the time for ceilings was spent before this shape"}


def test_faults_are_rows_and_the_search_goes_on():
    worker = Scripted(
        {"kernel": lambda w: WorkerFault("crashed", "the worker died of SIGSEGV") if w.count("kernel") == 2 else None}
    )
    found = search(worker)
    found.run(("fp32",), (None,), 60.0)
    failed = [row for row in found.rows if row.status != "ok"]
    assert [(row.status, row.reason, row.operation, row.unit) for row in failed] == [
        ("crashed", "the worker died of SIGSEGV", "convolution", "fp32")
    ]
    assert worker.count("launch") == 1


@pytest.mark.parametrize(
    ("task", "operations"), [("plan", ["matmul", "convolution"]), ("copies", ["copy"]), ("views", ["call"])]
)
def test_without_a_plan_rows_say_why(task: str, operations: list[str]):
    found = search(Scripted({task: WorkerFault("unavailable", "no units")}))
    found.run(("fp32",), (None,), 60.0)
    failed = [row for row in found.rows if row.status != "ok"]
    assert [(row.operation, row.reason) for row in failed] == [(operation, "no units") for operation in operations]
    assert any(row.status == "ok" for row in found.rows)


# --- the command ---


def test_the_table_and_its_exit_code(run):
    worker = Scripted()
    code, out, err = run(worker, "--budget", "60", "--precisions", "fp32")
    assert (code, err) == (0, "")
    assert out.startswith("Some CPU · cpu · torch 2.15.0\n")
    assert "fp32 product" in out
    assert {row[1][0].threads for row in worker.asked if row[0] == "kernel"} == {2}  # torch's own number
    assert worker.stopped == 1


def test_csv_is_the_records(run):
    _, out, _ = run(Scripted(), "--precisions", "fp32", "--threads", "3", "--format", "csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert tuple(rows[0]) == header(Ceiling)
    assert {row["threads"] for row in rows} == {"3"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--precisions", "tf33"), "got 'tf33', nearest tf32"),
        (("--precisions", "tf32"), "--precisions: no tf32 here; expected of fp32, amp-bf16, amp-fp16, got tf32"),
        (("--threads", "0"), "whole number of at least 1"),
        (("--device", "cuda", "--threads", "2"), "--threads: expected of a CPU only, got it for cuda"),
        (("--device", "gpu"), "--device: expected auto, cpu, cuda or cuda:N, got 'gpu'"),
        (("--device", "cpu:1"), "got 'cpu:1'"),
        (("--device", "cuda:"), "got 'cuda:'"),
        (("--budget", "0"), "--budget"),
    ],
)
def test_a_mistake_is_one_line(run, arguments: tuple[str, ...], said: str):
    code, out, err = run(Scripted(), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_a_device_that_is_not_there_is_a_mistake(run):
    code, _, err = run(Scripted({"probe": WorkerFault("invalid", "--device: there is none")}))
    assert (code, err) == (2, "error: --device: there is none\n")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"plan": WorkerFault("crashed", "dead")}, 1),
        ({"copies": WorkerFault("crashed", "dead")}, 1),
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
    assert len(ceiling_output.read(tmp_path / "new" / "ceilings.csv")) == 5
    assert worker.stopped == 1


# --- files ---


def test_the_file_reads_back_and_makes_a_machine(tmp_path: Path):
    seen = made_up_ceilings.cpu(1, 2)
    ceiling_output.write(seen, tmp_path)
    assert ceiling_output.read(tmp_path / "ceilings.csv") == list(seen.rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ceilings.csv",
        *(f"ceilings_{name}.{end}" for name in ("bandwidth", "products", "shapes") for end in ("png", "svg")),
    ]
    machine = machine_of(ceiling_output.read(tmp_path / "ceilings.csv"), "cpu", "Some CPU", threads=1)
    assert machine.peak_by_unit == pytest.approx({"fp32": 50e9})
    published = ROOT / "results" / "published" / "amd-epyc-2-cores-2026-11-29" / "ceilings.csv"
    assert {row.operation for row in ceiling_output.read(published)} == {"matmul", "convolution", "issue"}


@pytest.mark.parametrize(("text", "said"), [(None, "could not be read"), ("a,b\n1,2\n", "is no ceilings.csv")])
def test_what_is_no_such_file_is_said(tmp_path: Path, text: str | None, said: str):
    path = tmp_path / "ceilings.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=said):
        ceiling_output.read(path)


def test_the_real_thing_without_torch_in_the_parent(tmp_path: Path):
    code = "import sys; from runners.ceiling.command import main; code = main(sys.argv[1:])\n"
    code += "print('torch' in sys.modules, file=sys.stderr); sys.exit(code)"
    arguments = ["--budget", "1", "--precisions", "fp32", "--threads", "1", "--format", "json", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr.splitlines()[-1] == "False", done.stderr
    found = json.loads(done.stdout)
    assert found["device"] == "cpu"
    ok = {row["operation"] for row in found["rows"] if row["status"] == "ok"}
    assert {"matmul", "convolution"} <= ok
    assert {row["threads"] for row in found["rows"]} == {1}
    assert all(0 < row["best_s"] <= row["median_s"] for row in found["rows"] if row["status"] == "ok")
    rows = ceiling_output.read(tmp_path / "ceilings.csv")
    assert len(rows) == len(found["rows"])
    machine = machine_of(rows, "cpu", found["device_name"])
    assert 1e8 < machine.peak_by_unit["fp32"] < 1e14
