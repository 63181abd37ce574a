"""10,000 cells through planner, store and Ray executor: time and memory of the process that keeps the run.

    python -m benchmarks.cluster [--cells 10000] [--nodes 2]

Nodes are processes of this machine; their cells are made up and take no time, so that the driver is what is waited for.
The driver is killed when it has half of the cells, and another goes on. Says nothing of a network between the nodes.
"""

import argparse
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from results.records.cell import Cell
from results.store.manifest import Manifest, utc_now
from results.store.store import Store
from runners.cli.progress import Progress
from runners.sweep.executors.ray_slots import RaySlots
from runners.sweep.executors.remote import Remote
from runners.sweep.findings import SlotSettings
from runners.sweep.plan import Grid, cells, remaining
from runners.sweep.session import Limits

SLOT = "benchmarks.cluster.slot:EmptySlot"
ROOT = Path(__file__).parents[2]
MODELS = ("resnet18", "resnet34", "resnet50", "vgg11", "vgg13", "alexnet", "mobilenet_v2", "squeezenet1_1")
REPEATS = 10
EVERY = 1000
"""Cells between two lines about memory."""


def grid_of(count: int) -> Grid:
    """A grid of at least so many cells."""
    batches = tuple(range(1, 1 + -(-count // (len(MODELS) * REPEATS))))
    return Grid(models=MODELS, batch_sizes=batches, precisions=("fp32",), device="cpu", repeat=REPEATS)


def resident_bytes() -> int:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def drive(path: Path, count: int) -> None:
    """Measures what the run lacks of so many cells, and prints what that took."""
    began_s = time.perf_counter()
    planned = cells(grid_of(count))[:count]
    planned_s = time.perf_counter() - began_s
    print(f"plan        {planned_s:8.2f} s   {len(planned)} cells", flush=True)
    began_s = time.perf_counter()
    is_begun = (path / "manifest.json").exists()
    store = Store.resume(path) if is_begun else Store.create(path, Manifest(name="benchmark", created_at=utc_now()))
    todo = remaining(planned, store.done())
    opened_s = time.perf_counter() - began_s
    print(f"{'resume' if is_begun else 'create'}      {opened_s:8.2f} s   {len(todo)} cells to do", flush=True)
    began_s = time.perf_counter()
    remote = Remote(RaySlots(SlotSettings("cpu", 60.0, "1.0"), slot=SLOT), "1.0")
    try:
        remote.begin_session(store, remote.probe("cpu"))
        print(f"join        {time.perf_counter() - began_s:8.2f} s   until Ray's first slot", flush=True)
        _measure(store, remote, todo)
    finally:
        remote.close()
        store.close()


def _measure(store: Store, remote: Remote, todo: list[Cell]) -> None:
    log = io.StringIO()
    began_s, cpu_s, first = time.perf_counter(), time.process_time(), resident_bytes()
    count = 0
    for count in _numbers(store, remote, todo, log):
        if count == 1:
            print(f"first row   {time.perf_counter() - began_s:8.2f} s", flush=True)
        if count % EVERY == 0:
            print(f"memory      {resident_bytes() / 2**20:8.1f} MiB after {count} cells", flush=True)
    whole_s, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    if count:
        print(f"wall        {1e3 * whole_s / count:8.2f} ms a cell, fsync and slots included")
        print(f"driver      {1e3 * used_s / count:8.2f} ms of processor a cell, Ray's own threads included")
        print(f"growth      {(resident_bytes() - first) / count:8.0f} bytes a cell", flush=True)


def _numbers(store: Store, remote: Remote, todo: list[Cell], log: io.StringIO) -> Iterator[int]:
    """1, 2, … as rows are kept."""
    for number, _ in enumerate(remote.rows(store, todo, Limits(), Progress(len(todo), log)), start=1):
        if number % EVERY == 0:
            log.seek(0)
            log.truncate()
        yield number


def kill_and_resume(path: Path, count: int) -> None:
    """A driver that is killed when it has half of the cells, and one that goes on."""
    command = [sys.executable, "-m", "benchmarks.cluster", "--drive", str(path), "--cells", str(count)]
    print("a driver that is killed at half of the cells", flush=True)
    driver = subprocess.Popen(command, cwd=ROOT)
    rows = path / "runs.csv"
    while driver.poll() is None and (not rows.exists() or _lines(rows) <= count // 2):
        time.sleep(0.2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    print("the one that goes on", flush=True)
    began_s = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True)
    print(f"            {time.perf_counter() - began_s:8.2f} s in all")


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") - 1


def main() -> None:
    parser = argparse.ArgumentParser(description="What a sweep of many cells over Ray costs its driver.")
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--drive", type=Path, help="a run to begin or to go on with, on the cluster there is")
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.cells)
        return
    from ray.cluster_utils import Cluster

    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.cells} cells, {options.nodes} nodes")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(options.nodes):
            cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(ROOT)})
        os.environ["RAY_ADDRESS"] = cluster.address
        with tempfile.TemporaryDirectory() as folder:
            kill_and_resume(Path(folder, "run"), options.cells)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
