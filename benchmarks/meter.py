"""What the meter costs a training loop: interleaved pairs of steps with and without it.

    python -m benchmarks.meter
    python -m benchmarks.meter --pairs 2000

A small model on one thread, so that a step takes about 10 ms on a CPU. Steps with and without the meter take turns,
which of them comes first being drawn; the overhead is the median of the differences within pairs, with the interval of
the median. The clock is this thread's processor time, because other processes may use the machine. Memory is the
growth of the process's resident set over the last nine tenths of the metered steps. Exits 1 if a goal is missed: 30 µs
and 0.5 % of a step.

Not claimed: the cost on a GPU, where events are recorded instead of times.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from analysis.stats.summary import median_interval
from measure.meter.meter import UtilizationMeter

GOAL_S, GOAL_RATIO = 30e-6, 0.005
WIDTH, BATCH, LAYERS = 512, 64, 4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    plain, metered, grown = measure(options.pairs)
    found = median_interval([after - before for before, after in zip(plain, metered, strict=True)])
    assert found is not None
    low_s, cost_s, high_s = found
    step_s = sorted(plain)[len(plain) // 2]
    print(f"a step without the meter: {1e3 * step_s:.2f} ms (median of {len(plain)})")
    print(f"the meter: {1e6 * cost_s:.1f} us a step ({1e6 * low_s:.1f} to {1e6 * high_s:.1f})")
    print(f"relative: {100 * cost_s / step_s:.2f} % (goal {100 * GOAL_RATIO} %)")
    print(f"memory over the last nine tenths: {grown / 1e3:+.0f} kB")
    return int(cost_s > GOAL_S or cost_s > GOAL_RATIO * step_s)


def measure(pairs: int) -> tuple[list[float], list[float], int]:
    """Seconds of steps without and with the meter, and bytes by which the process grew."""
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    twin = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    meter = UtilizationMeter(model, energy=False)
    images = torch.randn(BATCH, WIDTH)
    times: dict[str, list[float]] = {"plain": [], "metered": []}
    draws, before = random.Random(0), 0

    def plain() -> None:
        twin(images).sum().backward()

    def metered() -> None:
        with meter.step(images):
            model(images).sum().backward()

    steps = {"plain": plain, "metered": metered}
    for number in range(pairs):
        for name in draws.sample(sorted(steps), 2):
            began_s = time.thread_time()
            steps[name]()
            times[name].append(time.thread_time() - began_s)
        if number == pairs // 10:
            before = resident_bytes()
    warm = min(10, pairs // 10)
    return times["plain"][warm:], times["metered"][warm:], resident_bytes() - before


def resident_bytes() -> int:
    """Of this process, from /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    sys.exit(main())
