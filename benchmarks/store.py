"""How long the store takes: one commit beyond its fsyncs, reading a large run, resuming it.

    python -m benchmarks.store [--cells 1000] [--samples 300]

Prints one line a number. Says nothing of a network file system, whose fsync may take far longer.
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

from results.records.cell import Run, Sitting
from results.records.samples import Sample, Telemetry
from results.store.disk import DISK, Disk
from results.store.manifest import Manifest
from results.store.store import Store, read_run


class Unsynced(Disk):
    """A disk without its waits, so that only the store's own time is left."""

    def fsync(self, fd: int) -> None:
        pass


def run_of(cell: str) -> Run:
    return Run(model="resnet18", batch_size=8, device="cpu", cell_id=cell, attempt=1, sitting="s", status="ok")


def write(path: Path, disk: Disk, cells: int, samples: int) -> float:
    """Median time of one commit in seconds, over a run of so many cells."""
    manifest = Manifest(name="benchmark", created_at="")
    times = []
    with Store.create(path, manifest, disk) as store:
        store.append_sitting(Sitting(sitting="s", started_at="", host="", device="cpu", device_name=""))
        for number in range(cells):
            cell = f"c{number:06d}"
            rows = {
                "samples.csv": [
                    Sample(
                        cell_id=cell,
                        attempt=1,
                        index=i,
                        part="measure",
                        steps=10,
                        start_s=i * 0.1234567,
                        wall_s=0.1 + 1 / (i + 3),
                    )
                    for i in range(samples)
                ],
                "telemetry.csv": [
                    Telemetry(
                        cell_id=cell, attempt=1, time_s=i * 0.1, sm_clock_hz=1_410_000_000, power_w=300 + 1 / (i + 3)
                    )
                    for i in range(samples // 3)
                ],
            }
            start = time.perf_counter()
            store.commit(run_of(cell), rows)
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the store takes.")
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=300)
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.cells} cells x {options.samples} samples"
    )
    with tempfile.TemporaryDirectory() as directory:
        synced = write(Path(directory, "synced"), DISK, min(options.cells, 50), options.samples)
        bare = write(Path(directory, "bare"), Unsynced(), options.cells, options.samples)
        print(f"commit, without fsync  {1e3 * bare:8.2f} ms")
        print(f"commit, with fsync     {1e3 * synced:8.2f} ms")
        import pandas  # noqa: F401  (its import is not reading)

        start = time.perf_counter()
        data = read_run(Path(directory, "bare"))
        print(f"read_run               {time.perf_counter() - start:8.2f} s   ({len(data.samples)} samples)")
        start = time.perf_counter()
        Store.resume(Path(directory, "bare")).close()
        print(f"Store.resume           {time.perf_counter() - start:8.2f} s")


if __name__ == "__main__":
    main()
