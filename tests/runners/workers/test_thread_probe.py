"""Definition, command: how many threads a sweep on a CPU takes, who decides it, and that its session keeps them."""

import itertools
import os

import pytest

from measure.device import processes
from results.records.cell import Cell
from results.store.store import read_run
from runners.workers import devices
from runners.workers.devices import COUNT, LONGEST_S, PASSIVE, WAIT, ProbeResult, fastest, thread_settings
from tests.support.fakes.real_sweeps import TINY, here


@pytest.fixture(autouse=True)
def _no_longer_than_needed(monkeypatch):
    monkeypatch.setattr(devices, "ROUNDS_S", 0.0)


def timed(times):
    """What times a step: of each choice its times in turn."""
    each = {choice: itertools.cycle(of_choice) for choice, of_choice in times.items()}
    return lambda choice: next(each[choice])


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({(2, PASSIVE): [0.31], (1, ""): [0.55], (2, ""): [0.30, 0.29, 0.31]}, (2, "")),  # an idle machine
        ({(2, PASSIVE): [0.9], (1, ""): [0.6], (2, ""): [2.1]}, (1, "")),  # threads wait for each other
        ({(2, PASSIVE): [0.5], (1, ""): [0.8], (2, ""): [3.0]}, (2, PASSIVE)),
        ({(2, PASSIVE): [0.9], (1, ""): [0.6], (2, ""): [LONGEST_S]}, (1, "")),
        ({(2, PASSIVE): [0.5, 0.4, 0.6, 0.5], (1, ""): [0.59], (2, ""): [2.0]}, (1, "")),  # 0.5 ± 0.1
        ({(2, PASSIVE): [0.5, 0.4, 0.6, 0.5], (1, ""): [0.61], (2, ""): [2.0]}, (2, PASSIVE)),
        ({(2, PASSIVE): [LONGEST_S]}, (2, "")),
    ],
)
def test_the_fastest_is_taken_and_fewer_threads_within_its_scatter(times, chosen):
    assert fastest(timed(times), 2)[0] == chosen


def test_numbers_below_one_that_is_twice_as_slow_are_not_tried():
    """Perfect scaling over eight processors: half of them take twice as long; what is not here would be a KeyError."""
    times = {(8, PASSIVE): [0.1], (8, ""): [0.1], (4, PASSIVE): [0.2]}
    assert fastest(timed(times), 8)[0] == (8, "")


def of_two(device):
    return Cell(model="resnet18", batch_size=8, device=device), ProbeResult(device=device, properties={"threads": 2})


def test_a_number_that_the_user_set_is_honoured_without_a_probe(monkeypatch):
    monkeypatch.setattr(devices, "probe_threads", None)
    monkeypatch.setenv(COUNT, "2")
    assert thread_settings(*of_two("cpu")) == {"threads": 2}
    assert thread_settings(*of_two("cuda")) == {}
    monkeypatch.delenv(COUNT)
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    assert thread_settings(*of_two("cpu")) == {}


@pytest.mark.survival
def test_the_session_has_what_was_chosen_and_keeps_it(monkeypatch, tmp_path):
    """Two threads, as torch takes by itself, but passive ones: the environment of the session says it."""
    monkeypatch.delenv(COUNT)
    monkeypatch.setattr(devices, "probe_threads", lambda cell, most: ((most, PASSIVE), "threads: passive ones"))
    processes.stop_server()
    try:
        said = here(*TINY, "--batch-sizes", 2, "--out", tmp_path / "run", cwd=tmp_path, figures=False)
        assert said.returncode == 0, said.stderr
        assert "threads: passive ones\n" in said.stderr
        monkeypatch.setenv(COUNT, "1")
        monkeypatch.delenv(WAIT)
        data = read_run(tmp_path / "run")
        options = data.manifest.options
        monkeypatch.setattr(devices, "prepare", lambda: None)
        devices.adopt_threads(options["threads"], options["wait_policy"])  # as a sweep that resumes this one does
        assert (os.environ[COUNT], os.environ[WAIT]) == (str(options["threads"]), PASSIVE)
    finally:
        processes.stop_server()
    (run,) = data.runs
    assert run.threads == options["threads"] >= 2
    assert run.wait_policy == PASSIVE
    environment = data.sessions[0].environment
    assert (environment["torch_threads"], environment["variables"][WAIT]) == (run.threads, PASSIVE)
