"""Law, injected fault: a Ray cluster on this machine loses no cell to a killed node, a killed driver or a full disk.

What cells measure is made up, but in the last test; nodes, processes and kills are real.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results.records.cell import MEASURED
from results.store.store import RunData, read_run
from tests.support.cluster.fake_slots import CELL_S, FULL
from tests.support.cluster.ray_driver import sweep
from tests.support.fakes.real_sweeps import ROOT, TINY, here

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

CELLS = 12
A_CELL_S = 0.3


class Machines:
    """A cluster whose head has no device, and nodes that come and go. name → node."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: dict[str, Any] = {}

    def add(self, name: str, **environ: str) -> None:
        """A node with one processor; its processes have this environment, too."""
        environ = {CELL_S: str(A_CELL_S), "PYTHONPATH": str(ROOT), **environ}
        more = {"num_cpus": 1, "resources": {name: 1.0}, "env_vars": environ, "object_store_memory": 80 << 20}
        self.nodes[name] = self.cluster.add_node(**more)

    def kill(self, name: str) -> None:
        """SIGKILL to everything of a node."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def clear(self) -> None:
        for name in list(self.nodes):
            self.kill(name)


@pytest.fixture(scope="module")
def all_machines() -> Iterator[Machines]:
    before = dict(os.environ)
    made = Machines()
    os.environ |= {"RAY_ADDRESS": made.cluster.address, "RAY_USAGE_STATS_ENABLED": "0"}
    yield made
    made.cluster.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def machines(all_machines: Machines) -> Iterator[Machines]:
    yield all_machines
    all_machines.clear()


def check_once(path: Path, count: int = CELLS) -> RunData:
    """Each cell has one row, with the samples of one attempt, and nothing is left over."""
    data = read_run(path)
    assert data.problems == []
    assert sorted(run.batch_size for run in data.all_runs) == list(range(1, count + 1))
    assert {(run.status, run.attempt) for run in data.all_runs} == {("ok", 1)}
    assert Counter(data.samples["cell_id"]) == {run.cell_id: 3 for run in data.runs}
    return data


def test_a_node_that_is_killed_in_the_middle_costs_no_cell(
    machines: Machines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    machines.add("one")
    machines.add("two")
    kept: list[str] = []

    def each(run: Any) -> None:
        kept.append(run.session)
        if machines.nodes.keys() == {"one", "two"} and len(set(kept)) == 2:
            machines.kill("two")

    said = sweep(tmp_path / "run", CELLS, each=each)
    data = check_once(tmp_path / "run")
    by = Counter(run.session for run in data.runs)
    assert len(by) == 2
    assert min(by.values()) < CELLS / 2, "the node was killed when it had measured a few"
    lost = [line for line in said.splitlines() if "-0 on " in line and line.endswith(("died", "any more"))]
    assert len(lost) == 1
    assert capfd.readouterr().out == ""


def test_a_full_disk(machines: Machines, tmp_path: Path) -> None:
    """A third node is well, so that all cells are measured, and by two of them."""
    machines.add("well")
    machines.add("one")
    machines.add("full", **{FULL: "1"})
    said = sweep(tmp_path / "run", CELLS)
    check_once(tmp_path / "run")
    assert "not used: [Errno 27] File too large" in said


def test_a_driver_that_is_killed_goes_on(machines: Machines, tmp_path: Path) -> None:
    machines.add("one")
    machines.add("two")
    path, rows = tmp_path / "run", tmp_path / "run" / "runs.csv"
    command = [sys.executable, "-m", "tests.support.cluster.ray_driver", str(path), str(CELLS)]
    driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end_s = time.monotonic() + 60.0
    while not rows.exists() or rows.read_bytes().count(b"\n") < 5:
        assert time.monotonic() < end_s, "the driver kept no rows"
        assert driver.poll() is None, "the driver ended by itself"
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait(10)
    before = len(read_run(path).runs)
    assert 4 <= before < CELLS
    sweep(path, CELLS)
    data = read_run(path)
    assert sorted(run.batch_size for run in data.runs) == list(range(1, CELLS + 1))
    assert len({run.cell_id for run in data.all_runs}) == len(data.all_runs), "a measured cell was measured again"


def test_a_real_sweep_holds_the_device_for_itself(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are this machine: a slot of one holds its processors, that of the other is refused."""
    machines.add("one")
    machines.add("two")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ("--executor", "ray", *TINY, "--batch-sizes", "2,4", "--out", tmp_path / "run")
    found = here(*words, cwd=ROOT, figures=False)
    assert found.returncode == 0, found.stderr
    data = read_run(tmp_path / "run")
    assert {run.status for run in data.runs} <= set(MEASURED)
    assert len(data.runs) == 2
    assert [session.environment["executor"] for session in data.sessions] == ["ray"]
    assert {run.flags_before["num_threads"] for run in data.runs} == {1}
    assert "synthetic_matmul" in found.stdout
    assert data.ceilings
