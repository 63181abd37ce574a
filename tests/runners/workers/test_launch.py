"""Injected fault: a worker's task becomes a result or a WorkerFault with its reason, and no process of it stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from measure.device import processes
from runners.workers import pool
from runners.workers.pool import Worker, WorkerFault, uninterrupted
from tests.support.processes import is_alive, wait_until_gone

ROOT = Path(__file__).parents[3]
SOON_S = 60.0
LINUX = sys.platform == "linux"


@pytest.fixture(autouse=True, scope="module")
def server():
    processes.prepare()


@pytest.fixture
def worker():
    made = Worker("test")
    yield made
    made.stop()


def call(worker: Worker, task: str, *arguments: object, timeout_s: float = SOON_S) -> object:
    return worker.call(f"tests.support.fakes.planted_tasks:{task}", *arguments, timeout_s=timeout_s)


def read_pids(mark: Path, within_s: float = SOON_S) -> list[int]:
    """What a task wrote of itself."""
    end_s = time.monotonic() + within_s
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < end_s, "the task never began"
        time.sleep(0.02)
    return [int(word) for word in mark.read_text().split()]


class TestResults:
    def test_one_process_serves_all_calls_and_is_not_this_one(self, worker):
        pids = {call(worker, "pid") for _ in range(3)}
        assert len(pids) == 1
        assert os.getpid() not in pids

    @pytest.mark.skipif(not LINUX, reason="Linux decides who dies when memory runs out")
    def test_the_kernel_takes_it_before_its_parent(self, worker):
        assert call(worker, "sacrifice") > int(Path("/proc/self/oom_score_adj").read_text())


class TestFaults:
    @pytest.mark.parametrize(
        ("task", "status", "said"),
        [
            (("fail", "ValueError", "no such size"), "invalid", "no such size"),
            (("fail", "RuntimeError", "odd"), "crashed", "RuntimeError: odd"),
            (("fail", "RuntimeError", "CUDA error: illegal"), "device_error", "RuntimeError: CUDA error: illegal"),
            (("fail", "MemoryError", "none left"), "out_of_memory", "MemoryError: none left"),
            (("allocate", 10**9), "out_of_memory", "MemoryError"),
            (("kill_me", signal.SIGSEGV), "crashed", "the worker died of SIGSEGV"),
            (("null_pointer",), "crashed", "SIGSEGV; it printed: about to read a null pointer"),
            (("kill_me", signal.SIGKILL), "crashed", "died of SIGKILL, as the kernel does when memory runs out"),
            (("kill_me", signal.SIGTERM), "crashed", "the worker died of SIGTERM"),
            (("kill_me", 40), "crashed", "the worker died of signal 40"),
            (("leave", 3), "crashed", "the worker ended with status 3 before it answered"),
            (("leave_at_once", 0), "crashed", "the worker ended with status 0 before it answered"),
            (("unpicklable",), "crashed", "the worker ended with status 1 before it answered"),
            (("die_while_answering", 200_000_000), "crashed", ""),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else None,
    )
    def test_a_fault_has_its_status_and_the_next_call_another_process(self, worker, task, status, said):
        before = call(worker, "pid")
        fault = call(worker, *task)
        assert isinstance(fault, WorkerFault), fault if not isinstance(fault, bytes) else len(fault)
        assert fault.status == status
        assert said in fault.reason
        assert "\n" not in fault.reason
        wait_until_gone(before)
        assert call(worker, "pid") != before

    def test_a_hang_ends_at_its_limit(self, worker):
        before = call(worker, "pid")
        start_s = time.monotonic()
        fault = call(worker, "hang", timeout_s=0.5)
        assert (fault.status, fault.reason) == ("timeout", "killed at its limit of 0.5 s")
        assert 0.5 <= time.monotonic() - start_s < 10
        wait_until_gone(before)
        assert call(worker, "echo", "again") == ("again",)

    def test_a_hang_takes_what_it_started_with_it(self, worker, tmp_path):
        call(worker, "nothing")
        assert call(worker, "hang_with_a_child", str(tmp_path / "pids"), timeout_s=2).status == "timeout"
        pids = read_pids(tmp_path / "pids")
        assert len(pids) == 2
        wait_until_gone(*pids)

    def test_a_death_is_seen_at_once_even_if_another_process_holds_the_pipe(self, worker, tmp_path):
        call(worker, "nothing")
        start_s = time.monotonic()
        fault = call(worker, "die_leaving_a_child", str(tmp_path / "pids"), timeout_s=600)
        assert fault.status == "crashed"
        assert "SIGABRT" in fault.reason
        assert time.monotonic() - start_s < 20
        wait_until_gone(*read_pids(tmp_path / "pids"))

    def test_no_room_for_a_process_is_not_the_cells_fault(self, worker, monkeypatch):
        monkeypatch.setattr(pool.tempfile, "NamedTemporaryFile", lambda **_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            call(worker, "nothing")


class TestInterruption:
    def test_an_interrupt_passes_through_and_the_process_is_gone(self, worker):
        pid = call(worker, "pid")
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(KeyboardInterrupt):
                call(worker, "hang")
        finally:
            signal.signal(signal.SIGALRM, before)
        wait_until_gone(pid)
        assert call(worker, "echo", 3) == (3,)  # and no stale answer

    def test_uninterrupted_waits_for_the_end_of_the_block(self):
        done = []

        def block() -> None:
            with uninterrupted():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
                done.append("whole")
            done.append("never")

        with pytest.raises(KeyboardInterrupt):
            block()
        assert done == ["whole"]


PARENT = """
import sys
from runners.workers.pool import Worker
Worker("orphan").call(sys.argv[1], sys.argv[2], timeout_s=600)
"""


def start_parent(task: str, mark: Path) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", PARENT, f"tests.support.fakes.planted_tasks:{task}", str(mark)]
    return subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True, stderr=subprocess.PIPE)


class TestOrphans:
    @pytest.mark.parametrize(
        "task",
        [
            "hang",
            "hang_with_a_child",
            pytest.param(
                "hang_with_the_interpreter",
                marks=pytest.mark.skipif(not LINUX, reason="Linux ends a process with the one that forked it"),
            ),
        ],
    )
    def test_a_parent_that_is_killed_takes_its_worker_along(self, task, tmp_path):
        mark = tmp_path / "pids"
        with start_parent(task, mark) as parent:
            pids = read_pids(mark)
            assert all(map(is_alive, pids))
            parent.kill()
            parent.wait()
            wait_until_gone(*pids)

    def test_a_server_that_is_killed_costs_one_fault(self):
        """In a process of its own: this one's server serves other tests."""
        code = """
import multiprocessing.forkserver, os, signal, threading
from runners.workers.pool import Worker
worker = Worker("served")
worker.call("tests.support.fakes.planted_tasks:nothing", timeout_s=60)
server = multiprocessing.forkserver._forkserver._forkserver_pid
threading.Timer(0.3, os.kill, (server, signal.SIGKILL)).start()
print(worker.call("tests.support.fakes.planted_tasks:hang", timeout_s=60).status)
print(worker.call("tests.support.fakes.planted_tasks:echo", "again", timeout_s=60))
worker.stop()
"""
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=True
        )
        assert said.stdout.splitlines() == ["crashed", "('again',)"]


def test_a_worker_can_have_variables_that_this_process_has_not(worker):
    other = Worker("test", environ={"OMP_WAIT_POLICY": "passive"})
    assert other.call("os:getenv", "OMP_WAIT_POLICY", timeout_s=60) == "passive"
    other.stop()
    assert worker.call("os:getenv", "OMP_WAIT_POLICY", timeout_s=60) is None
    assert "OMP_WAIT_POLICY" not in os.environ
