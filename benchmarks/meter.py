"""What the meter costs a training loop: steps with and without it, in turns, in ten processes.

    python -m benchmarks.meter
    python -m benchmarks.meter --model medium --processes 10 --rounds 300

Each process trains one model on one thread. In each round come a bare step, another one, and one with the meter, in an
order that is drawn; the meter's hooks are taken off for the others. The cost is what the last takes longer than the
first: the medians over usual steps, over those after which steps are added up, and over observed ones, each by its
share of all steps; without the count at the beginning. The clock is this thread's processor time, because other
processes may use the machine. Printed is the median over the processes, with the least and the most. Exits 1 if it is
above the goal: 0.3 % of the step, or 30 µs if that is more.

Not claimed: the cost on a GPU, where events are recorded instead of times.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch

from measure.meter.meter import UtilizationMeter

GOAL_S, GOAL_RATIO = 30e-6, 0.003
SIZES = {"small": (2, 8, 4), "medium": (12, 512, 64)}
"""Name → layers, their width, samples of a batch."""
WARM = 10
"""Rounds that are not kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(SIZES), default="small")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not options.processes:
        print(*cost_s(options.model, options.rounds))
        return 0
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return costs(options.model, options.processes, options.rounds)


def costs(model: str, processes: int, rounds: int) -> int:
    """Print what the meter costs in so many processes, one after the other; 1 if its goal is missed."""
    command = [sys.executable, "-m", "benchmarks.meter", "--model", model, "--rounds", str(rounds), "--processes", "0"]
    found = []
    for _ in range(processes):
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        found.append([float(each) for each in told])
    step_s, again_s, usual_s, adding_s, observed_s = (statistics.median(column) for column in zip(*found, strict=True))
    each_s = sorted(sum(parts) for _, _, *parts in found)
    whole_s = statistics.median(each_s)
    goal_s = max(GOAL_S, GOAL_RATIO * step_s)
    print(f"a step of {1e3 * step_s:.2f} ms, {rounds} rounds in each of {processes} processes")
    print(f"  the meter: {1e6 * whole_s:+.1f} us ({1e6 * each_s[0]:+.1f} to {1e6 * each_s[-1]:+.1f}),", end=" ")
    print(f"{100 * whole_s / step_s:.2f} % of the step; goal {1e6 * goal_s:.0f} us")
    print(f"  of that in each step {1e6 * usual_s:+.1f} us, for adding up {1e6 * adding_s:+.1f} us,", end=" ")
    print(f"for observed steps {1e6 * observed_s:+.1f} us; the same step twice {1e6 * again_s:+.1f} us")
    return int(whole_s > goal_s)


def cost_s(name: str, rounds: int) -> tuple[float, ...]:
    """Seconds of a bare step; what the same step takes longer a second time; what the meter adds to a usual step; and
    what adding up and observing add to each step in the mean."""
    layers, width, batch = SIZES[name]
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
    optimizer, inputs = torch.optim.SGD(model.parameters(), lr=1e-3), torch.randn(batch, width)
    meter = UtilizationMeter(model, energy=False)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    def metered() -> None:
        with meter.step():
            step()

    runs = {"bare": step, "again": step, "metered": metered}
    plain: list[float] = []
    extra: dict[str, list[float]] = {kind: [] for kind in ("again", "usual", "adding", "observed")}
    draws = random.Random(os.getpid())
    for turn in range(WARM + rounds):
        taken, adds = {}, meter._step.left == 0
        for kind in draws.sample(sorted(runs), len(runs)):
            (meter._calls.attach if kind == "metered" else meter._calls.detach)()
            taken[kind] = _seconds(runs[kind])
        if turn < WARM:
            continue
        is_observed = meter._observations.last == meter._step.number
        plain.append(taken["bare"])
        extra["again"].append(taken["again"] - taken["bare"])
        kind = "observed" if is_observed else "adding" if adds else "usual"
        extra[kind].append(taken["metered"] - taken["bare"])
    found = {kind: statistics.median(each or [0.0]) for kind, each in extra.items()}
    shares = (found[kind] * len(extra[kind]) / rounds for kind in ("usual", "adding", "observed"))
    return statistics.median(plain), found["again"], *shares


def _seconds(run: Callable[[], None]) -> float:
    began_s = time.thread_time()
    run()
    return time.thread_time() - began_s


if __name__ == "__main__":
    sys.exit(main())
