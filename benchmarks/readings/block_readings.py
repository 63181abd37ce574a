"""What each reading of a block costs: µs of every total of the disturbance record and of the core's state, by name.

    python -m benchmarks.readings.block_readings [--readings 300]

Once on this machine, and once on planted files in memory (/dev/shm), as a machine has them that tells everything:
`cpufreq`'s clock of each processor, a sensor of temperature, pressure of the system and of a control group. Least and
median of wall time. The time of a cache line between two processors reads no file, and is measured here alone.

Not claimed: what a real driver does behind its file. `scaling_cur_freq` and a sensor's file ask hardware; planted ones
ask none: their time is that of opening, reading and taking apart alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType

from benchmarks.paired.disturbance import taken_s
from measure.timing import disturbance
from results.errors import Unavailable

SOME = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def plant(root: Path) -> None:
    """Files of a machine that tells everything. The others, of this process, are links to the real ones."""
    files = {
        "proc/pressure/cpu": SOME,
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/cpu.stat": "usage_usec 9\nnr_periods 5\nnr_throttled 2\nthrottled_usec 500000\n",
        "sys/fs/cgroup/a/b/cpu.pressure": SOME,
        "sys/class/hwmon/hwmon0/name": "k10temp\n",
        "sys/class/hwmon/hwmon0/temp1_input": "61250\n",
    }
    for cpu in range(os.cpu_count() or 1):
        files[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"] = "2500000\n"
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in ("proc/self/task", "proc/thread-self", "proc/stat"):
        (root / path).symlink_to(Path("/") / path)


def rows(where: str, readings: int, more: Mapping[str, Callable[[], float]] = MappingProxyType({})) -> Iterator[str]:
    """A line of the table for each reading, and of some more; the reason where there is none."""
    for name, read in {**disturbance._TOTALS, **disturbance._STATE, **more}.items():
        try:
            read()
        except Unavailable as fault:
            yield f"| {where} | `{name}` | – | {fault} |"
            continue
        found = taken_s(read, readings)
        yield f"| {where} | `{name}` | {found[0] * 1e6:.1f} µs | {median(found) * 1e6:.1f} µs |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--readings", type=int, default=300, help="of each (300)")
    options = parser.parse_args()
    print("| where | reading | least | median |\n| --- | --- | --- | --- |")
    print("\n".join(rows("here", options.readings, disturbance._PLACE)))
    real = disturbance.ROOT
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        plant(Path(folder))
        try:
            disturbance.ROOT = Path(folder)
            print("\n".join(rows("planted", options.readings)))
        finally:
            disturbance.ROOT = real
    return 0


if __name__ == "__main__":
    sys.exit(main())
