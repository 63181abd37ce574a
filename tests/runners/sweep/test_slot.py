"""Law, injected fault: a slot sends what a session on one machine keeps, and no other slot has its device."""

import argparse
import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from results.store.store import Store, read_operations, read_run
from runners.sweep import options as sweep_options
from runners.sweep import ray_slots
from runners.sweep import session as sweep_session
from runners.sweep.findings import Order, SlotSettings, store_result
from runners.sweep.ray_slots import Slot, check_single_device, hold
from runners.sweep.request import check_executor
from runners.workers.pool import WorkerFault
from tests.support.cluster.fake_slots import place
from tests.support.fakes.commands import refused, running
from tests.support.fakes.fake_session import MEASURE, TRACE, Scene, cell, in_turn, measured
from tests.support.made_up.made_up_runs import MANIFEST, SESSION, Unsynced, operations

BEGAN = "2026-03-04T05:06:07Z"


def slot_of(scene: Scene) -> Slot:
    made = Slot(SlotSettings("cpu", 60.0, "1.0"))
    made.watch = scene.watch
    return made


def order(scene: Scene, wanted: Any, **more: Any) -> Order:
    return Order(wanted, scene.store.next_attempt(wanted.cell_id), "s1", "2.15.0", BEGAN, **more)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path / "run", monkeypatch)


def test_the_rows_of_a_slot_are_those_of_a_session_on_one_machine(scene: Scene, tmp_path: Path) -> None:
    """The same cells by the same made-up workers: once into a run, once by way of a result."""
    wanted = [cell(), cell("alexnet"), cell(batch_size=4), cell("vgg11")]
    answers = [measured(), WorkerFault("out_of_memory", "no room"), measured("not_converged", "too wide"), measured()]
    scene.answers[MEASURE] = in_turn(*answers, *answers)
    made = slot_of(scene)
    results = [(one, made.attempt(one)) for one in (order(scene, each) for each in wanted)]
    with Store.create(tmp_path / "other", MANIFEST, Unsynced()) as other:
        other.append_session(SESSION)
        kept = [store_result(other, order, result) for order, result in results]
    list(scene.rows(wanted))
    here, there = read_run(scene.path), read_run(tmp_path / "other")
    assert there.problems == here.problems == []
    ours = [replace(run, started_at="", duration_s=None) for run in here.runs]
    assert [replace(run, started_at="", duration_s=None) for run in there.runs] == ours
    assert {run.started_at for run in kept} == {BEGAN}
    assert there.rows == here.rows
    assert there.ceilings == here.ceilings
    identity = here.runs[0].trace_id
    assert identity
    assert read_operations(tmp_path / "other", identity) == read_operations(scene.path, identity)


def test_two_tables_for_one_trace_cost_the_cell_that_came_second(scene: Scene) -> None:
    one, two = order(scene, cell()), order(scene, cell(seed=3))
    first = slot_of(scene).attempt(one)
    scene.answers[TRACE] = replace(scene.answers[TRACE], operations=tuple(operations(3)))
    second = slot_of(scene).attempt(two)
    ok, run = store_result(scene.store, one, first), store_result(scene.store, two, second)
    assert ok.status == "ok"
    assert run.status == "crashed"
    assert "two tables for one trace" in run.reason
    assert [each.status for each in read_run(scene.path).runs] == ["ok", "crashed"]


@pytest.mark.parametrize("visible", [None, "", "0,1"])
def test_a_slot_sees_one_device(visible: str | None) -> None:
    check_single_device("GPU-1")
    with pytest.raises(ValueError, match="expected one device in CUDA_VISIBLE_DEVICES"):
        check_single_device(visible)


class Watched:
    """A watch whose device others use."""

    reason = ""

    def __init__(self, device: str) -> None:
        self.others = 0 if device == "cpu" else 2

    def preflight(self) -> dict[str, Any]:
        return {"other_processes": self.others}

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(sweep_session, "TelemetryWatch", Watched)
    monkeypatch.setattr(ray_slots, "harness_version", lambda: "1.0")
    monkeypatch.setattr(ray_slots, "prepare", lambda: None)
    monkeypatch.setattr(sweep_session, "ask_once", lambda _task, device: replace(place().probed, device=device))
    monkeypatch.setattr(ray_slots.tempfile, "gettempdir", lambda: str(tmp_path))

    def make(device: str = "cpu", version: str = "1.0", threads: str = "") -> Slot:
        return Slot(SlotSettings(device, 60.0, version, threads))

    return make


def test_a_slot_says_what_is_here_and_refuses_what_is_not_its_own(machine: Any) -> None:
    made = machine()
    assert made.slot_facts().probed.name == "A CPU"
    with pytest.raises(ValueError, match="held by another"):
        machine().slot_facts()
    os.close(made._held)
    machine().slot_facts()
    with pytest.raises(ValueError, match=r"expected version 2\.0, as where the run is kept, got 1\.0"):
        machine(version="2.0").slot_facts()
    with pytest.raises(ValueError, match="expected a device that nobody else uses, got one with 2 other processes"):
        machine("cuda").slot_facts()


def parsed(*words: str) -> argparse.Namespace:
    return sweep_options.parser().parse_args(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--accelerator", "H100"), "--accelerator: expected --executor ray beside it"),
        (("--executor", "ray", "--profile", "nsys"), "--profile: expected kineto with --executor ray, got nsys"),
        (("--executor", "ray", "--device", "cuda:1"), "--device: expected auto, cpu or cuda with --executor ray"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], expected: str) -> None:
    check_executor(parsed())
    with pytest.raises(ValueError, match=f"^{expected}"):
        check_executor(parsed(*words))


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    honest = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else honest(name, *more))
    from runners.sweep.__main__ import main

    words = "--executor ray: ray is not installed: python -m pip install 'ray>="
    refused(running(main, capsys)("--executor", "ray"), words)


def test_a_device_is_held_by_one_slot_at_a_time(tmp_path: Path) -> None:
    held = hold("cpu", tmp_path)
    with pytest.raises(ValueError, match=r"for this slot alone, got .*flopledger-cpu.lock held by another"):
        hold("cpu", tmp_path)
    os.close(hold("gpu", tmp_path))
    os.close(held)
    os.close(hold("cpu", tmp_path))
