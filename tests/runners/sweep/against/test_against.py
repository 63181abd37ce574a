"""`sweep --against`: what is refused, two sides that are kept as a pair, a kill between them, a side that fails."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from results.store import pairing_of, read_run
from runners.sweep import session as sweep_session
from runners.sweep.against import command as against_command
from runners.sweep.against import session as against_session
from runners.sweep.against.pairs import Rules, SideRun
from runners.sweep.against.session import NO_ENERGY, Comparison, SharedWatch, SideSession
from runners.workers import WorkerFault
from tests.support.fakes import fake_session
from tests.support.fakes.fake_session import MEASURE, Scene, measured
from tests.support.fakes.real_sweeps import QUICK, Sweep, here

MODEL = """
import torch
from depth import DEPTH


def build():
    hidden = [layer for _ in range(DEPTH) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    return torch.nn.Sequential(*hidden, torch.nn.Linear(64, 10))
"""
OWN = (*QUICK, "--models", "model.py:build", "--input", "64", "--batch-sizes", "64", "--methods", "exact")


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Old and new, whose model has a layer more: by a file beside it, which each has to import from its own folder."""
    for name, depth in (("old", 1), ("new", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text(MODEL)
        (tmp_path / name / "depth.py").write_text(f"DEPTH = {depth}\n")
    return tmp_path / "old", tmp_path / "new"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*OWN, "--against", "../gone"), "--against: expected a directory with the other checkout, got ../gone"),
        ((*OWN, "--against", "model.py"), "expected a directory with the other checkout, got model.py"),
        (("--models", "resnet18", "--against", "../old"), "expected a model of a file below this folder"),
        ((*OWN, "--against", "../old", "--repeat", "3"), "--repeat: not with --against"),
        ((*OWN, "--against", "../old", "--methods", "one"), "--methods with one, batch or epoch: not with --against"),
        ((*OWN, "--slower", "2%"), "--slower: expected --against DIR"),
        ((*OWN, "--alarm", "0.9", "--against", "../old"), "--alarm: expected a number from"),
        ((*OWN, "--against-options", "--layot x"), "--layot"),
        ((*OWN, "--against-options", "--models resnet18"), "--models has to be the same on both sides"),
    ],
)
def test_mistakes_are_one_line(checkouts: tuple[Path, Path], arguments: tuple[str, ...], said: str) -> None:
    done = here(*arguments, "--out", "../out", cwd=checkouts[1])
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (checkouts[1].parent / "out").exists()


def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pairs of one round: what is tested is not the time."""

    def rules(**given: Any) -> Rules:
        return Rules(**{**given, "most_pairs": 6, "rounds": 1})

    monkeypatch.setattr(against_command, "Rules", rules)


@pytest.mark.survival
def test_two_checkouts_become_two_runs_that_are_read_as_a_pair(
    checkouts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_pairs(monkeypatch)
    done = here(*OWN, "--against", "../old", "--out", "../out", cwd=checkouts[1], figures=False)
    assert done.returncode == 0, done.stderr
    old, new = (read_run(tmp_path / "out" / side) for side in ("old", "new"))
    marks = [pairing_of(run.manifest.options) for run in (old, new)]
    assert [(mark.side, mark.root) for mark in marks if mark] == [("A", str(checkouts[0])), ("B", str(checkouts[1]))]
    layers = [run.runs[0].parameters for run in (old, new)]
    assert layers == [64 * 64 + 64 + 650, 2 * (64 * 64 + 64) + 650], "each has its own depth.py"
    assert all(any(NO_ENERGY in warning for warning in run.runs[0].warnings) for run in (old, new))
    gate = here("out/old", "out/new", "--fail-if", "flop:0,launches:0,slower:1000%", cwd=tmp_path, command="report")
    assert gate.returncode == 5
    assert "more FLOP in 1 of 1 cell" in " ".join(gate.stdout.split())
    assert "interleaved" in gate.stdout
    again = here("--resume", "../out", cwd=checkouts[1], figures=False)
    assert again.returncode == 0, again.stderr
    assert "1 of 1 pairs of cells are there already" in again.stderr
    (checkouts[0] / "depth.py").write_text("DEPTH = 3\n")
    refused = here("--resume", "../out", cwd=checkouts[1], figures=False)
    assert (refused.returncode, "start a new comparison" in refused.stderr) == (2, True)


@pytest.mark.survival
def test_a_kill_in_the_middle_of_a_pair_costs_that_pair(
    checkouts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sweep(*OWN, "--against", "../old", "--out", "../out", cwd=checkouts[1]) as sweep:
        end_s = time.monotonic() + 120
        while not _begun(tmp_path):
            sweep.meet()
            assert time.monotonic() < end_s
            time.sleep(0.05)
        sweep.run_for(3.0)
        sweep.process.kill()
        sweep.process.wait()
        sweep.no_survivors()
    few_pairs(monkeypatch)
    done = here("--resume", "../out", cwd=checkouts[1], figures=False)
    assert done.returncode == 0, done.stderr
    assert [run.status in ("ok", "not_converged") for side in ("old", "new") for run in _runs(tmp_path, side)] == [
        True
    ] * 2
    assert "interleaved" in here("out/old", "out/new", cwd=tmp_path, command="report").stdout


def _begun(folder: Path) -> bool:
    return (folder / "out" / "old" / "ceilings.csv").is_file()


def _runs(folder: Path, side: str) -> list[Any]:
    return read_run(folder / "out" / side).runs


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Scene, Scene]:
    return Scene(tmp_path / "old", monkeypatch), Scene(tmp_path / "new", monkeypatch)


def comparison(scenes: tuple[Scene, Scene], tmp_path: Path) -> Comparison:
    sides = [
        SideSession(
            scene.store,
            "s1",
            "2.15.0",
            SharedWatch(scene.watch),
            sweep_session.Limits(),
            fake_session.Progress(2, scene.stream),
        )
        for scene in scenes
    ]
    rules = Rules(limit_ratio=0.02, alarm_ratio=0.05, cap_s=1.0, timeout_s=1.0)
    return Comparison(sides[0], sides[1], (tmp_path, tmp_path), rules)


def filled(a: SideRun, b: SideRun, *rest: Any) -> str:
    time.sleep(0.05)
    for side in (a, b):
        side.samples += measured().blocks
    return "+1.0% to +2.0% after 6 pairs of processes"


def test_a_kill_between_the_two_rows_measures_both_again(
    scenes: tuple[Scene, Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old side's row is there, the new side's is not: the pair is to do, and gets an attempt more of the old."""
    monkeypatch.setattr(against_session, "time_interleaved", filled)
    made, cell = comparison(scenes, tmp_path), fake_session.cell()

    def killed(cell: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made.b, "measure", killed)
    with pytest.raises(KeyboardInterrupt):
        made.collect([(cell, cell)])
    assert [len(scene.store.done()) for scene in scenes] == [1, 0]
    again = comparison(scenes, tmp_path).collect([(cell, cell)])
    assert [(run.attempt, run.status) for run in again] == [(2, "not_converged"), (1, "not_converged")]
    assert all(run.duration_s >= 0.05 for run in again), "what both took together is in both rows"


@pytest.mark.parametrize(("failing", "statuses"), [("A", ["crashed", "ok"]), ("B", ["ok", "crashed"])])
def test_a_side_that_fails_costs_its_cell_only(
    scenes: tuple[Scene, Scene],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    statuses: list[str],
) -> None:
    """The other side's cell is measured by itself, and the next pair is interleaved."""
    cells = [dataclasses.replace(fake_session.cell(), seed=seed) for seed in (0, 1)]

    def fails_once(a: SideRun, b: SideRun, *rest: Any) -> str:
        if a.cell.seed == 0:
            raise against_session.SideFault(failing, WorkerFault("crashed", "killed by SIGKILL"))
        return filled(a, b)

    monkeypatch.setattr(against_session, "time_interleaved", fails_once)
    runs = comparison(scenes, tmp_path).collect([(cell, cell) for cell in cells])
    assert [run.status for run in runs[:2]] == statuses, [run.reason for run in runs]
    assert [run.reason for run in runs[:2] if run.status == "crashed"] == ["killed by SIGKILL"]
    assert [call.task for scene in scenes for call in scene.calls if call.task == MEASURE] == [MEASURE]
    assert all("in_turn" in run.warnings[0] for run in runs[2:])
