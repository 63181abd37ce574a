"""What the disturbance record costs: seconds of both readings of a block, and of the core's state after it.

    python -m benchmarks.paired.disturbance [--threads 3] [--readings 300]

Least and median of the readings, of wall time. Against a block of 0.2 s, which is 20 steps of 10 ms:
the goal is at most 0.5 % of it. The readings lie outside of a block's time, so that this is time of a cell, not of a
step.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from statistics import median

from measure.native.round_trip import round_trip_s
from measure.timing.disturbance import absent, core_state, disturbance
from results.errors import Unavailable

BLOCK_S, GOAL_RATIO = 0.2, 0.005


def taken_s(read: Callable[[], object], readings: int) -> list[float]:
    """Seconds of each of so many readings, the shortest first: a round trip between two processors is in threads of its
    own, so that processor time of this one would leave it out."""
    found = []
    for _ in range(readings):
        begun_s = time.perf_counter()
        read()
        found.append(time.perf_counter() - begun_s)
    return sorted(found)


def round_trip() -> None:
    with contextlib.suppress(Unavailable):
        round_trip_s()


def both() -> None:
    disturbance().since(disturbance())
    core_state(with_round_trip=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=3, help="of the process, whose waits are read (3)")
    parser.add_argument("--readings", type=int, default=300, help="of each (300)")
    options = parser.parse_args()
    ended = threading.Event()
    threads = [threading.Thread(target=ended.wait, daemon=True) for _ in range(options.threads - 1)]
    for thread in threads:
        thread.start()
    not_here = absent(on_cpu=True)  # before the round trips: one of their threads may end while all threads are read
    print("| reading | least | median |\n| --- | --- | --- |")
    for name, read in (
        ("disturbance", disturbance),
        ("core_state", core_state),
        ("round trip", round_trip),
        ("of a block, all", both),
    ):
        found = taken_s(read, options.readings)
        print(f"| {name} | {found[0] * 1e6:.0f} µs | {median(found) * 1e6:.0f} µs |")
    ended.set()
    ratio = median(found) / BLOCK_S
    print(
        f"\n{ratio:.2%} of a block of {BLOCK_S:g} s; goal {GOAL_RATIO:.1%}. Not available here: "
        f"{', '.join(not_here) or 'nothing'}"
    )
    return int(ratio > GOAL_RATIO)


if __name__ == "__main__":
    sys.exit(main())
