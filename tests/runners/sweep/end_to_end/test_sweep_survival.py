"""Law, injected fault: real sweeps, killed, interrupted or out of room, lose no cell, repeat none and tear no row."""

import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from results.records.cell import MEASURED, Run
from results.store.store import RunData, read_run
from tests.support.fakes.real_sweeps import TINY, Sweep, here, sweep


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


@pytest.mark.survival
def test_kills_at_random_moments(tmp_path):
    """Importing, a ceiling and six cells take more than 9 s anywhere: the first kill finds the sweep at work."""
    kill_and_resume(tmp_path, TINY, [1, 2, 3, 4, 5, 6], kills=3, seed=20260102)


@pytest.mark.survival
def test_kills_right_after_each_commit(tmp_path):
    """The moment at which a cell counts, and the next one begins."""
    path, sizes = tmp_path / "run", [1, 2, 3]
    grid = (*TINY, "--batch-sizes", "1,2,3", "--out", path)
    for done in range(len(sizes)):
        with Sweep(*(("--resume", path) if done else grid), cwd=tmp_path) as running:
            running.wait_for("[1/")
            running.send(signal.SIGKILL)
            running.process.wait(30)
            running.no_survivors()
        assert len(kept(path)) >= done + 1
    assert sweep("--resume", path, cwd=tmp_path).returncode == 0
    check_complete(path, sizes)


@pytest.mark.survival
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_was_measured_and_a_second_sweep_is_refused_meanwhile(tmp_path, number, code):
    path, sizes = tmp_path / "run", [1, 2, 3]
    with Sweep(*TINY, "--batch-sizes", "1,2,3", "--out", path, cwd=tmp_path) as running:
        first = running.wait_for("[1/3]")
        assert ": ok" in first or ": not_converged" in first
        if number == signal.SIGINT:
            running.send(signal.SIGSTOP)  # so that it does not end before the others have asked
            asked = (("--resume", path), (*TINY, "--out", path))
            with ThreadPoolExecutor() as both:
                answers = list(both.map(lambda words: sweep(*words, cwd=tmp_path), asked))
            for words, second in zip(asked, answers, strict=True):
                assert (second.returncode, second.stdout, second.stderr.count("\n")) == (2, "", 1)
                assert second.stderr.startswith("error: ")
                held = f"is being written by another sweep (pid {running.process.pid} on "
                assert held in second.stderr or "holds a run already: pass --resume" in second.stderr
                assert ("--resume" not in words) or held in second.stderr
            running.send(signal.SIGCONT)
        running.run_for(0.4)
        running.send(number)
        start_s = time.monotonic()
        assert running.end() == code
        assert time.monotonic() - start_s < 20
        assert running.out == "", "no half of an answer"
        assert running.said[-1] == f"stopped; what was measured is kept; next: python -m runners.sweep --resume {path}"
        assert "Traceback" not in "".join(running.said)
    before = kept(path)
    interrupted = [run for run in before.values() if run.status == "interrupted"]
    measured = {run.cell_id: run for run in before.values() if run.status in MEASURED}
    assert len(interrupted) <= 1, "none where the signal came between two cells"
    assert all(run.duration_s > 0 for run in interrupted)
    assert 1 <= len(measured) < 3
    done = here("--resume", path, "--format", "csv", cwd=tmp_path, figures=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(measured)} of 3 cells are measured already" in done.stderr
    check_complete(path, sizes)
    after = {run.cell_id: run for run in read_run(path).runs}
    assert {cell_id: after[cell_id] for cell_id in measured} == measured, "not touched"
    assert all(after[run.cell_id].attempt == 2 for run in interrupted)
    assert [session.session for session in read_run(path).sessions] == ["s0", "s1"]
    assert done.stdout == (path / "utilization.csv").read_text()


@pytest.mark.survival
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
