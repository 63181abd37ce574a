"""Real training, killed, interrupted, out of room and betrayed: no cell lost, none twice, no torn row, no orphan."""

from __future__ import annotations

import io
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from results.records import MEASURED, Cell, Run
from results.store.layout import profile_file
from results.store.store import RunData, Store, read_profile, read_run
from runners.cli.progress import Progress
from runners.sweep import sitting as sweep_sitting
from runners.sweep.sitting import Limits, Sitting
from runners.workers.pool import Worker, prepare
from runners.workers.telemetry import Watch
from tests.support.fakes.real_sweeps import QUICK, TINY, WORKS, Sweep, sweep
from tests.support.made_up.made_up_runs import MANIFEST, SITTING

MEASURE = "runners.sweep.cell:measure"


def kept(path: Path) -> dict[str, Run]:
    """The committed cells; every row of theirs is there, and nothing is damaged but what a kill may leave."""
    if not (path / "manifest.json").exists():
        return {}
    data = read_run(path)
    problems = [problem for problem in data.problems if not problem.endswith(("was dropped", "committed, left out"))]
    assert problems == []
    assert len({(run.cell_id, run.attempt) for run in data.all_runs}) == len(data.all_runs)
    check_samples(data)
    return {run.cell_id: run for run in data.runs}


def check_samples(data: RunData) -> None:
    """Each measured cell has the samples of one attempt, numbered without a gap, and no other cell has any."""
    groups = dict(iter(data.samples.groupby("cell_id")))
    measured = {run.cell_id: run for run in data.runs if run.status in MEASURED}
    assert set(groups) == set(measured)
    for cell_id, rows in groups.items():
        assert rows["index"].tolist() == list(range(len(rows)))
        assert set(rows["attempt"]) == {measured[cell_id].attempt}


def check_complete(path: Path, batch_sizes: list[int]) -> None:
    """A finished run like one that was never touched: each cell once, and the answer for each."""
    data = read_run(path)
    assert sorted(run.batch_size for run in data.runs) == batch_sizes
    assert {run.status for run in data.runs} <= set(MEASURED)
    measured = [run.cell_id for run in data.all_runs if run.status in MEASURED]
    assert len(measured) == len(set(measured)) == len(batch_sizes), "a cell was measured twice"
    answer = (path / "utilization.csv").read_text()
    assert all(answer.count(f"\n{run.cell_id},") >= 1 for run in data.runs)
    assert not list(path.rglob("*.tmp"))


def kill_and_resume(folder: Path, words: tuple[str, ...], batch_sizes: list[int], kills: int, seed: int) -> None:
    """SIGKILL to the parent at random moments, then `--resume`, until nothing is left to do."""
    moments = random.Random(seed)
    path, before = folder / "run", {}
    grid = (*words, "--batch-sizes", ",".join(map(str, batch_sizes)))
    died = 0
    for _ in range(kills):
        begun = (path / "manifest.json").exists()
        with Sweep(*(("--resume", path) if begun else (*grid, "--out", path)), cwd=folder) as running:
            running.run_for(moments.uniform(0.5, 9.0))
            running.send(signal.SIGKILL)
            died += running.process.wait(30) == -signal.SIGKILL
            running.no_survivors()
        now = kept(path)
        assert {cell_id: run.attempt for run in before.values() for cell_id in [run.cell_id]}.items() <= {
            cell_id: run.attempt for cell_id, run in now.items()
        }.items(), "a cell that was kept is lost or was measured again"
        before = now
    assert died, "the kills came when everything was done"
    done = sweep(*(("--resume", path) if (path / "manifest.json").exists() else (*grid, "--out", path)), cwd=folder)
    assert done.returncode == 0, done.stderr
    check_complete(path, batch_sizes)
    last = {run.cell_id: run.attempt for run in read_run(path).runs}
    assert {cell_id: run.attempt for cell_id, run in before.items()}.items() <= last.items()


@pytest.mark.slow
def test_kills_at_random_moments(tmp_path):
    """Importing, a ceiling and six cells take more than 9 s anywhere: the first kill finds the sweep at work."""
    kill_and_resume(tmp_path, TINY, [1, 2, 3, 4, 5, 6], kills=3, seed=20260102)


@pytest.mark.slow
def test_many_kills_at_random_moments_with_counters(tmp_path):
    words = (*QUICK, "--models", "synthetic_convolution", "--repeat", "1")
    kill_and_resume(tmp_path, words, [1, 2, 3, 4, 5, 6], kills=12, seed=7)


@pytest.mark.slow
def test_kills_at_random_moments_of_cells_with_works(tmp_path):
    """Most of such a cell's time is spent in its works; each cell ends up with the profile that its row commits."""
    kill_and_resume(tmp_path, WORKS, [2, 3, 4], kills=4, seed=11)
    path = tmp_path / "run"
    for run in read_run(path).runs:
        assert run.unprofiled == {}
        rows = read_profile(path, run.cell_id, run.attempt)
        assert {row.work for row in rows} == set(run.profiled) == {"one", "batch", "last"}
        assert run.committed[profile_file(run.cell_id, run.attempt)][0] == len(rows)


@pytest.mark.slow
def test_a_kill_in_the_midst_of_a_work(tmp_path):
    """A second after the first commit the next cell is at its works: it is measured again, and the first is not."""
    path = tmp_path / "run"
    with Sweep(*WORKS, "--batch-sizes", "2,3", "--out", path, cwd=tmp_path) as running:
        running.wait_for("[1/2]")
        running.run_for(1.0)
        running.send(signal.SIGKILL)
        assert running.process.wait(30) == -signal.SIGKILL
        running.no_survivors()
    before = kept(path)
    assert len(before) == 1
    assert sweep("--resume", path, cwd=tmp_path).returncode == 0
    check_complete(path, [2, 3])
    after = kept(path)
    assert {cell_id: after[cell_id] for cell_id in before} == before
    assert all(len(list((path / "profiles").glob(f"{cell_id}-*.csv.gz"))) == 1 for cell_id in after)


@pytest.mark.slow
def test_kills_right_after_each_commit(tmp_path):
    """The moment at which a cell counts, and the next one begins."""
    path, sizes = tmp_path / "run", [1, 2, 3, 4]
    grid = (*TINY, "--batch-sizes", "1,2,3,4", "--out", path)
    for done in range(len(sizes)):
        with Sweep(*(("--resume", path) if done else grid), cwd=tmp_path) as running:
            running.wait_for("[1/")
            running.send(signal.SIGKILL)
            running.process.wait(30)
            running.no_survivors()
        assert len(kept(path)) >= done + 1
    assert sweep("--resume", path, cwd=tmp_path).returncode == 0
    check_complete(path, sizes)


@pytest.mark.parametrize(("number", "code", "count"), [(signal.SIGINT, 130, 10), (signal.SIGTERM, 143, 3)])
def test_a_signal_keeps_what_was_measured_and_a_second_sweep_is_refused_meanwhile(tmp_path, number, code, count):
    path, sizes = tmp_path / "run", list(range(1, count + 1))
    with Sweep(*TINY, "--batch-sizes", ",".join(map(str, sizes)), "--out", path, cwd=tmp_path) as running:
        first = running.wait_for(f"[1/{count}]")
        assert ": ok" in first or ": not_converged" in first
        if number == signal.SIGINT:
            asked = (("--resume", path), (*TINY, "--out", path))
            with ThreadPoolExecutor() as both:
                answers = list(both.map(lambda words: sweep(*words, cwd=tmp_path), asked))
            for words, second in zip(asked, answers, strict=True):
                assert (second.returncode, second.stdout, second.stderr.count("\n")) == (2, "", 1)
                assert second.stderr.startswith("error: ")
                held = f"is being written by another sweep (pid {running.process.pid} on "
                assert held in second.stderr or "holds a run already: pass --resume" in second.stderr
                assert ("--resume" not in words) or held in second.stderr
            assert running.process.poll() is None, "the refusals came while it ran"
        running.run_for(0.4)
        running.send(number)
        start_s = time.monotonic()
        assert running.end() == code
        assert time.monotonic() - start_s < 20
        assert running.out == "", "no half of an answer"
        assert running.said[-1] == "stopped; what was measured is kept, --resume goes on"
        assert "Traceback" not in "".join(running.said)
    before = kept(path)
    interrupted = [run for run in before.values() if run.status == "interrupted"]
    measured = {run.cell_id: run for run in before.values() if run.status in MEASURED}
    assert len(interrupted) <= 1, "none where the signal came between two cells"
    assert all(run.duration_s > 0 for run in interrupted)
    assert 1 <= len(measured) < count
    done = sweep("--resume", path, "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{len(measured)} of {count} cells are there already" in done.stderr
    check_complete(path, sizes)
    after = {run.cell_id: run for run in read_run(path).runs}
    assert {cell_id: after[cell_id] for cell_id in measured} == measured, "not touched"
    assert all(after[run.cell_id].attempt == 2 for run in interrupted)
    assert [sitting.sitting for sitting in read_run(path).sittings] == ["s0", "s1"]
    assert done.stdout == (path / "utilization.csv").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_full_disk_keeps_whole_rows_and_goes_on_when_there_is_room(tmp_path):
    """After the first cell no file of the parent may grow by more than a few bytes: the next write is cut short."""
    path = tmp_path / "run"
    with Sweep(*TINY, "--batch-sizes", "1,2,3", "--out", path, cwd=tmp_path) as running:
        running.wait_for("[1/3]")
        most = max((path / file).stat().st_size for file in ("runs.csv", "samples.csv")) + 20
        psutil.Process(running.process.pid).rlimit(psutil.RLIMIT_FSIZE, (most, most))
        assert running.end(120) == 3
        assert running.out == ""
        last = running.said[-1]
        assert last.startswith("error: ")
        assert last.endswith("could not be written: File too large; whole rows are kept, --resume goes on")
        assert "Traceback" not in "".join(running.said)
    before = kept(path)
    assert 1 <= len(before) < 3
    for file in ("runs.csv", "samples.csv"):
        assert (path / file).read_bytes().endswith(b"\n"), "cut back to whole rows"
    done = sweep("--resume", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check_complete(path, [1, 2, 3])
    after = {run.cell_id: run for run in read_run(path).runs}
    assert {cell_id: after[cell_id] for cell_id in before} == before


def test_a_time_budget_starts_no_cell_that_would_not_finish(tmp_path):
    sizes = [*range(1, 41)]
    start_s = time.monotonic()
    words = ("--batch-sizes", ",".join(map(str, sizes)), "--time-budget", "9", "--format", "json", "--out", "run")
    done = sweep(*TINY, *words, cwd=tmp_path)
    taken_s = time.monotonic() - start_s
    assert done.returncode == 0, done.stderr
    data = read_run(tmp_path / "run")
    assert 1 <= len(data.runs) < 40
    assert f"time budget: {40 - len(data.runs)} of 40 cells not started; --resume goes on" in done.stderr
    took_s = [run.duration_s for run in data.runs]
    for begun in range(1, len(took_s)):
        spent_s, longest_s = sum(took_s[:begun]), max(took_s[:begun])
        assert 9 - spent_s >= 1.2 * longest_s, "begun with less left than the longest so far and a fifth"
    assert taken_s < 60
    assert '"cell_id"' in done.stdout


# --- a worker that turns on its sweep, in the midst of training ---


class Betrayed(Worker):
    """A worker whose task for some cells is another: batch size → (kind, limit in seconds or None)."""

    plan: dict[int, tuple[str, float | None]] = {}
    all: list[Betrayed] = []

    def __init__(self, name: str, quiet: bool = True) -> None:
        super().__init__(name, quiet)
        self.pids: list[int] = []
        self.all.append(self)

    def call(self, task: str, *arguments: object, timeout_s: float) -> object:
        cell = arguments[0]
        if task == MEASURE and isinstance(cell, Cell) and cell.batch_size in self.plan:
            kind, limit_s = self.plan[cell.batch_size]
            limit_s = timeout_s if limit_s is None else limit_s
            return super().call("tests.support.fakes.planted_tasks:train_and", kind, *arguments, timeout_s=limit_s)
        return super().call(task, *arguments, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def betrayed(tmp_path_factory):
    """One sweep in this process over real workers; after each cell that turns on it comes one that does not."""
    prepare()
    kinds = {2: "segfault", 4: "hang", 6: "memory", 8: "tf32", 10: "killed", 12: "exit", 14: "device", 16: "nan"}
    Betrayed.plan = {size: (kind, 4.0 if kind == "hang" else None) for size, kind in kinds.items()}
    Betrayed.all = []
    path, stream = tmp_path_factory.mktemp("betrayed") / "run", io.StringIO()
    common = {"model": "synthetic_matmul", "device": "cpu", "quick": True, "target_ci_ratio": 0.9}
    cells = [Cell(**common, batch_size=size, methods=("exact",), counters=()) for size in range(1, 18)]
    patch = pytest.MonkeyPatch()
    patch.setattr(sweep_sitting, "Worker", Betrayed)
    with patch.context(), Store.create(path, MANIFEST) as store:
        store.append_sitting(SITTING)
        progress = Progress(len(cells), stream)
        sitting = Sitting(store, "s1", {"torch": "x"}, Watch("cpu"), Limits(cell_timeout_s=120.0), progress)
        sitting.collect(cells)
    patch.undo()
    return {run.batch_size: run for run in read_run(path).runs}, path, stream.getvalue()


def test_each_betrayal_is_one_row_and_the_next_cell_is_measured(betrayed):
    runs, path, said = betrayed
    assert sorted(runs) == list(range(1, 18))
    expected = {2: "crashed", 4: "timeout", 6: "out_of_memory", 8: "invalid", 10: "crashed", 12: "crashed"}
    expected |= {14: "device_error"}
    for size, run in runs.items():
        assert run.status in ((expected[size],) if size in expected else MEASURED), run
        assert run.attempt == 1
    assert read_run(path).problems == []
    assert said.count("\n") == 17


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (2, "the worker died of SIGSEGV"),
        (4, "killed at its limit of 4 s"),
        (6, "can't allocate memory"),
        (8, "flags read back after the cell disagree with the precision: "),
        (10, "the worker died of SIGKILL, as the kernel does when memory runs out"),
        (12, "the worker ended with status 5 before it answered"),
        (14, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ],
)
def test_the_reason_is_in_the_row(betrayed, size, reason):
    assert reason in betrayed[0][size].reason


def test_a_flag_that_a_model_flips_makes_the_row_invalid_and_the_row_shows_both_readings(betrayed):
    """The mutant of fp32: TF32 switched on by a forward in the middle of the cell."""
    run = betrayed[0][8]
    assert run.flags_before["float32_matmul_precision"] == "highest"
    assert run.flags_after["float32_matmul_precision"] == "high"
    assert "expected highest, found high" in run.reason
    after = betrayed[0][9]
    assert after.flags_before["float32_matmul_precision"] == after.flags_after["float32_matmul_precision"] == "highest"


def test_a_loss_that_is_no_number_is_a_warning(betrayed):
    run = betrayed[0][16]
    assert "loss: the last loss was nan" in run.warnings
    assert run.last_loss is None
    assert not any(warning.startswith("loss") for warning in betrayed[0][17].warnings)


def test_a_fresh_worker_came_after_each_status_but_ok(betrayed):
    runs = betrayed[0]
    (measurer,) = [worker for worker in Betrayed.all if worker.name == "measure"]
    assert measurer.started == 1 + sum(runs[size].status != "ok" for size in range(1, 17))
    assert measurer._process is None, "and none is left"


def test_the_samples_of_a_betrayed_cell_are_kept_only_where_it_was_measured(betrayed):
    samples = read_run(betrayed[1]).samples
    counts = samples.groupby("cell_id").size().to_dict()
    for size, run in betrayed[0].items():
        assert (run.cell_id in counts) == (run.status in (*MEASURED, "invalid")), size


class Killed(Worker):
    """A worker that dies in one work of each cell."""

    def call(self, task: str, *arguments: object, timeout_s: float) -> object:
        if task == "runners.sweep.cell:measure_work" and arguments[1] == "batch":
            return super().call(
                "tests.support.fakes.planted_tasks:kill_me", signal.SIGKILL, "no room", timeout_s=timeout_s
            )
        return super().call(task, *arguments, timeout_s=timeout_s)


def test_a_worker_that_is_killed_in_a_work_costs_no_cell(tmp_path, monkeypatch):
    """The kernel takes it when memory runs out: its own step was measured before, and one sample was, too."""
    prepare()
    common = {"model": "synthetic_matmul", "device": "cpu", "quick": True, "target_ci_ratio": 0.9, "counters": ()}
    cells = [Cell(**common, batch_size=size, methods=("one", "batch", "exact")) for size in (1, 2)]
    monkeypatch.setattr(sweep_sitting, "Worker", Killed)
    with Store.create(tmp_path / "run", MANIFEST) as store:
        store.append_sitting(SITTING)
        progress = Progress(len(cells), io.StringIO())
        Sitting(store, "s1", {"torch": "x"}, Watch("cpu"), Limits(cell_timeout_s=120.0), progress).collect(cells)
    data = read_run(tmp_path / "run")
    assert len(data.runs) == 2
    for run in data.runs:
        assert run.status in MEASURED
        assert run.profiled == ("one",)
        died = "the worker died of SIGKILL, as the kernel does when memory runs out; it printed: no room"
        assert run.unprofiled == {"batch": died}
    assert set(data.samples["work"].fillna("")) == {"", "one"}


def test_no_process_of_these_sweeps_is_left():
    mine = psutil.Process(os.getpid()).children(recursive=True)
    names = [" ".join(child.cmdline()) for child in mine if child.status() != psutil.STATUS_ZOMBIE]
    assert [name for name in names if "runners.sweep" in name] == []
