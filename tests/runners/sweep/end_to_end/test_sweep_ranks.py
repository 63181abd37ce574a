"""Law, injected fault: sweeps under torchrun as two replicas, and with ranks that are killed, hang or are slow."""

import csv
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from analysis.utilization.step_times import ASIDE
from results.records.cell import RankCollective, RankRow, RankSample, Run, Sample
from results.store.reading import RunData, read_run
from tests.support.fakes import real_sweeps
from tests.support.fakes.real_sweeps import QUICK, Sweep, rows

pytestmark = pytest.mark.survival

WIDTH, BATCH, CALLS = 256, 64, 3

NET = f"""
import os, signal, time
import torch

class Net(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first, self.last = torch.nn.Linear({WIDTH}, {WIDTH}), torch.nn.Linear({WIDTH}, {WIDTH})
        self.act, self.calls = act, 0
    def forward(self, x):
        self.calls += 1
        if os.environ.get("RANK") == "1" and self.calls > {CALLS}:
            self.act()
        return self.last(self.first(x))

def sound():
    return Net(lambda: None)
def killed():
    return Net(lambda: os.kill(os.getpid(), signal.SIGKILL))
def hung():
    return Net(lambda: time.sleep(1000))
class Slowed:
    ended_s = None
    def __call__(self):
        if self.ended_s is not None:
            time.sleep(min(time.perf_counter() - self.ended_s, 0.05))
        self.ended_s = time.perf_counter()

def late():
    return Net(lambda: time.sleep(0.02))
def half():
    return Net(Slowed())
"""
"""Two products, whose weights and biases are 2 · (256² + 256) numbers. Rank 1 acts after its third step; where it is
slowed to half, it sleeps before each step as long as its last one took."""

FORWARD_FLOP = 2 * 2 * BATCH * WIDTH**2
STEP_FLOP = 3 * FORWARD_FLOP - FORWARD_FLOP // 2
"""The first product's input needs no gradient."""

GRADIENT_BYTES = 4 * 2 * (WIDTH**2 + WIDTH)


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sweep]:
    return real_sweeps.under_torchrun(monkeypatch, 2)


def words(folder: Path, *models: str) -> tuple[object, ...]:
    (folder / "net.py").write_text(NET)
    names = ",".join(f"{folder}/net.py:{model}" for model in models)
    grid = ("--models", names, "--input", WIDTH, "--batch-sizes", BATCH, "--methods", "exact")
    return (*QUICK, *grid, "--cell-timeout", 24, "--out", folder / "run")


def runs(data: RunData) -> dict[tuple[str, str], Run]:
    return {(run.model.rpartition(":")[2], run.parallel): run for run in data.runs}


def test_ranks_that_are_killed_hang_or_are_slow_cost_their_own_row(
    tmp_path: Path, torchrun: Callable[..., Sweep]
) -> None:
    with torchrun(*words(tmp_path, "killed", "hung", "late", "half"), cwd=tmp_path) as sweep:
        assert sweep.end(180) == 1, sweep.said
    data = read_run(tmp_path / "run")
    found = runs(data)
    assert {model: run.status for (model, _), run in found.items()} == {
        "killed": "crashed",
        "hung": "timeout",
        "late": "ok",
        "half": "ok",
    }
    name = f"rank 1 of 2 ({socket.gethostname()} cpu)"
    assert found["killed", "ddp=2"].reason.startswith(f"{name}: the worker died of SIGKILL")
    assert found["hung", "ddp=2"].reason.startswith(f"{name}: killed at its limit of 24 s")
    late = {row.rank: row for row in rows(data, RankRow, found["late", "ddp=2"])}
    assert late[1].waited_for_ratio > 0.9
    assert late[1].late_since_step is not None
    assert late[0].late_since_step is None
    timed = [row.index for row in rows(data, Sample, found["late", "ddp=2"]) if row.part in ("measure", *ASIDE)]
    with (tmp_path / "run" / "parallel.csv").open() as file:
        steps = {row["cell_id"]: row for row in csv.DictReader(file)}
    row = steps[found["late", "ddp=2"].cell_id]
    assert int(row["late_since_block"]) == min(timed), "it was late before the first of them"
    assert late[0].wait_s > 0.6 * 0.02
    row = steps[found["half", "ddp=2"].cell_id]
    assert row["late_rank"] == "1"
    assert 0.2 < float(row["late_ratio"]) < 0.8, "the other one waits for half of each step"


def check_replicas(data: RunData, run: Run) -> None:
    """What two replicas share: each half of the FLOP, all of the gradients."""
    ranks = rows(data, RankRow, run)
    assert [row.rank for row in ranks] == [0, 1]
    assert [row.executed for row in ranks] == [{"matmul/float32": STEP_FLOP // 2}] * 2
    assert run.executed == {"matmul/float32": STEP_FLOP}
    assert run.items_per_step == BATCH
    for row in rows(data, RankCollective, run):
        assert (row.kind, row.given_bytes) == ("all_reduce", GRADIENT_BYTES)
    blocks = {(row.index, row.rank): row for row in rows(data, RankSample, run) if row.part == "measure"}
    system = [row for row in rows(data, Sample, run) if row.part == "measure"]
    own = sorted((row for (_, rank), row in blocks.items() if rank == 0), key=lambda row: row.start_s)
    other = sorted((row for (_, rank), row in blocks.items() if rank == 1), key=lambda row: row.start_s)
    assert [row.wall_s for row in system] == [max(a.wall_s, b.wall_s) for a, b in zip(own, other, strict=True)]


def test_shared_weights_and_a_single_rank_beside_replicas(tmp_path: Path, torchrun: Callable[..., Sweep]) -> None:
    plans = ("--parallel", "ddp=1", "dp=2", "fsdp=2")
    with torchrun(*words(tmp_path, "sound"), *plans, cwd=tmp_path) as sweep:
        assert sweep.end(150) == 0, sweep.said
    data = read_run(tmp_path / "run")
    found = {run.parallel: run for run in data.runs}
    assert {plan: run.status for plan, run in found.items()} == dict.fromkeys(("ddp=1", "ddp=2", "fsdp=2"), "ok")
    check_replicas(data, found["ddp=2"])
    whole = GRADIENT_BYTES // 4
    held = {plan: [row.parameters for row in rows(data, RankRow, run)] for plan, run in found.items()}
    assert held == {"ddp=1": [whole], "ddp=2": [whole] * 2, "fsdp=2": [whole // 2] * 2}
    assert {run.parameters for run in data.runs} == {whole}
    kinds = {row.kind for row in rows(data, RankCollective, found["fsdp=2"])}
    assert "all_gather" in kinds
    answer = (tmp_path / "run" / "utilization.csv").read_text()
    assert "2 ranks, of the first: fp32" in answer


@pytest.mark.gpu
def test_two_gpus_train_over_nccl(tmp_path: Path, torchrun: Callable[..., Sweep]) -> None:
    """Needs two CUDA devices."""
    if torch.cuda.device_count() < 2:
        pytest.skip("no CUDA device")
    given = [*words(tmp_path, "sound"), "--device", "cuda", "--precisions", "fp32", "--parallel", "ddp=2", "fsdp=2"]
    with torchrun(*given, cwd=tmp_path) as sweep:
        assert sweep.end(300) == 0, sweep.said
    data = read_run(tmp_path / "run")
    assert len(data.runs) == 2
    for run in data.runs:
        assert run.executed == {"matmul/float32": STEP_FLOP}
        assert [row.device for row in rows(data, RankRow, run)] == ["cuda", "cuda:1"]


def test_a_rank_whose_process_is_killed_interrupts_the_cell(tmp_path: Path, torchrun: Callable[..., Sweep]) -> None:
    with torchrun(*words(tmp_path, "late"), "--parallel", "ddp=2", cwd=tmp_path) as sweep:
        sweep.wait_for("1 cell, at least")
        sweep.run_for(3)
        rank = next(
            child for child in psutil.Process(sweep.process.pid).children() if child.environ().get("RANK") == "1"
        )
        os.kill(rank.pid, signal.SIGKILL)
        sweep.end(60)
    (run,) = read_run(tmp_path / "run").runs
    assert (run.status, run.reason) == ("interrupted", "Ctrl-C or a signal")


def test_a_torchrun_that_is_killed_ends_its_ranks_and_interrupts_the_cell(
    tmp_path: Path, torchrun: Callable[..., Sweep]
) -> None:
    with torchrun(*words(tmp_path, "late", "sound"), "--parallel", "ddp=2", cwd=tmp_path) as sweep:
        sweep.wait_for("2 cells, at least")
        sweep.run_for(3)
        sweep.process.kill()
        sweep.process.wait(10)
        sweep.no_survivors()
    (run,) = read_run(tmp_path / "run").runs
    assert (run.status, run.reason) == ("interrupted", "Ctrl-C or a signal")


def test_two_hosts_meet_by_torchruns_own_rendezvous_and_share_no_files(tmp_path: Path) -> None:
    """Two of torchrun's agents with a process each, in folders of their own: that of the first rank gets the run."""
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{real_sweeps.free_port()}", "--rdzv-id", "two")
    sweep = ("-m", "runners.sweep", *words(tmp_path, "sound"), "--parallel", "ddp=2", "--out", "run")
    run = (
        "-m",
        "torch.distributed.run",
        "--nnodes",
        2,
        "--nproc-per-node",
        1,
        "--local-addr",
        "localhost",
        *meet,
        *sweep,
    )
    folders = [tmp_path / name for name in ("one", "two")]
    hosts = []
    try:
        for folder in folders:
            folder.mkdir()
            environ = {"cwd": folder, "env": real_sweeps.ENVIRON, "text": True}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            hosts.append(subprocess.Popen([sys.executable, *map(str, run)], **environ, **pipes))
        answers = [host.communicate(timeout=150) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.wait(10)
    assert [host.returncode for host in hosts] == [0, 0], answers
    assert sorted(bool(out) for out, _ in answers) == [False, True], "the first rank alone prints"
    (kept,) = (folder / "run" for folder in folders if (folder / "run").exists())
    data = read_run(kept)
    check_replicas(data, data.runs[0])
