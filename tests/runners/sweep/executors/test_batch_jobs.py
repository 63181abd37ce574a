"""Slots in batch jobs, by submitit's local executor: processes of this machine that are submitted as jobs are; on a
machine with Slurm also by `sbatch`."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from results.records import Run
from results.store.manifest import Manifest, utc_now
from results.store.store import Store, read_run
from runners.cli.progress import Progress
from runners.sweep.executors import slurm_slots
from runners.sweep.executors.mailbox import BEAT, END, FACTS, FAULT, Mailbox, serve
from runners.sweep.executors.remote import Remote
from runners.sweep.executors.result import Order
from runners.sweep.executors.slurm_slots import SlurmSlots, is_in_queue, parameters_of
from runners.sweep.session import Limits
from tests.support.cluster.fake_slots import CELL_S, SETTINGS
from tests.support.cluster.ray_driver import SLOT, plan
from tests.support.fakes.real_sweeps import ROOT

REFUSED = "tests.support.cluster.fake_slots:RefusedSlot"


def order(cell: Any) -> Order:
    return Order(cell, 1, "s0", "2.15.0", utc_now())


class TestMailbox:
    def test_a_slot_answers_its_orders_in_turn_until_the_end(self, tmp_path: Path) -> None:
        box, cells = Mailbox(tmp_path), plan(3)
        for number, cell in enumerate(cells):
            box.put(f"order-{number}", order(cell))
        box.put("order-3", order(cells[0]))
        box.put(BEAT, 1)
        assert box.get(END) is None
        assert serve(str(tmp_path), SETTINGS, SLOT, silence_s=0.3) == "silence"
        results = [box.take(f"result-{number}") for number in range(4)]
        assert [result.run.cell_id for result in results] == [cell.cell_id for cell in (*cells, cells[0])]
        assert box.take("result-0") is None
        assert box.take(FACTS).probed.name == "A CPU"

    def test_it_ends_when_it_is_told_to(self, tmp_path: Path) -> None:
        Mailbox(tmp_path).put(END, True)
        assert serve(str(tmp_path), SETTINGS, SLOT) == "end"

    def test_a_slot_that_may_not_be_used_says_why(self, tmp_path: Path) -> None:
        assert serve(str(tmp_path), SETTINGS, REFUSED) == "fault"
        assert "2 other processes" in Mailbox(tmp_path).get(FAULT)

    def test_a_value_is_there_whole_or_not_at_all(self, tmp_path: Path) -> None:
        box = Mailbox(tmp_path)
        with pytest.raises(AttributeError, match="Can't"):
            box.put("order-0", lambda: None)
        assert box.get("order-0") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("partition=gpu,time=60", {"partition": "gpu", "time": "60"}),
        ("gres=gpu:h100:1", {"gres": "gpu:h100:1"}),
    ],
)
def test_parameters(text: str, expected: dict[str, str]) -> None:
    assert parameters_of(text) == expected


@pytest.mark.parametrize("text", ["gpu", "=1", "partition=", "a b=1"])
def test_what_is_no_parameter(text: str) -> None:
    with pytest.raises(ValueError, match="--slurm: expected NAME=VALUE"):
        parameters_of(text)


def test_without_slurm_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_slots.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="--executor slurm: expected Slurm's sbatch on this machine, found none"):
        SlurmSlots(SETTINGS, 1, {}, tmp_path)


def test_a_parameter_that_submitit_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--slurm: .*parttion"):
        SlurmSlots(SETTINGS, 1, {"cluster": "local", "parttion": "gpu"}, tmp_path)


@pytest.mark.parametrize(
    ("code", "out", "err", "expected"),
    [
        (0, "RUNNING\n", "", True),
        (0, "PENDING\n", "", True),
        (0, "", "", False),
        (1, "", "slurm_load_jobs error: Invalid job id specified", False),
        (1, "", "slurm_load_jobs error: Unable to contact slurm controller", True),
    ],
)
def test_a_job_has_ended_when_slurm_says_so(code: int, out: str, err: str, expected: bool) -> None:
    """Not when Slurm does not answer."""
    done = subprocess.CompletedProcess([], code, out, err)
    assert is_in_queue("7", lambda *words, **more: done) is expected


def sweep(
    path: Path, jobs: int, count: int, parameters: dict[str, str], each: Callable[[Run, SlurmSlots], None]
) -> str:
    stream = io.StringIO()
    slots = SlurmSlots(SETTINGS, jobs, parameters, path / "jobs", SLOT)
    remote = Remote(slots, "slurm", SETTINGS.version)
    try:
        probed = remote.probe("cpu")
        with Store.create(path / "run", Manifest(name="r", created_at=utc_now())) as store:
            remote.begin_session(store, probed)
            for run in remote.rows(store, plan(count), Limits(), Progress(count, stream)):
                each(run, slots)
    finally:
        remote.close()
    return stream.getvalue()


def check_once(path: Path, count: int) -> Counter[str]:
    """Each cell once; how many each session has."""
    data = read_run(path / "run")
    assert data.problems == []
    assert sorted(run.batch_size for run in data.all_runs) == list(range(1, count + 1))
    assert {(run.status, run.attempt) for run in data.all_runs} == {("ok", 1)}
    return Counter(run.sitting for run in data.runs)


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit's, of a job that still runs
class TestJobs:
    @pytest.fixture(autouse=True)
    def from_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(ROOT)  # jobs begin where they were submitted
        monkeypatch.setattr(slurm_slots, "STATE_S", 0.5)
        monkeypatch.setenv(CELL_S, "0.2")

    def test_a_job_that_is_killed_costs_no_cell(self, tmp_path: Path) -> None:
        killed = []

        def each(run: Run, slots: SlurmSlots) -> None:
            if run.sitting == "s1" and not killed:
                slot = sorted(slots._busy or slots._jobs)[0]
                process = psutil.Process(slots._jobs[slot]._process.pid)
                killed.append(slot)
                for each_process in (*process.children(recursive=True), process):
                    each_process.kill()

        said = sweep(tmp_path, 2, 10, {"cluster": "local"}, each)
        check_once(tmp_path, 10)
        assert killed
        assert "ended by itself" in said

    @pytest.mark.skipif(shutil.which("sbatch") is None, reason="no Slurm")
    def test_by_slurm_itself(self, tmp_path: Path) -> None:
        sweep(tmp_path, 1, 3, {"time": "5"}, lambda run, slots: None)
        assert check_once(tmp_path, 3) == {"s0": 3}
