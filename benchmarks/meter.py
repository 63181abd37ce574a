"""What the meter costs a training loop: steps with and without it, in turns, in ten processes.

    python -m benchmarks.meter
    python -m benchmarks.meter --model medium --processes 10 --rounds 300
    python -m benchmarks.meter --flat 100000
    python -m benchmarks.meter --agreement resnet18,mobilenet_v2

Each process trains one model on one thread. In each round come a bare step, another one, and one with the meter, in an
order that is drawn; the meter's hooks are taken off for the others. The cost is what the last takes longer than the
first: the medians over usual steps, over those after which steps are added up, and over observed ones, each by its
share of all steps; without the count at the beginning. The clock is this thread's processor time, because other
processes may use the machine. Printed is the median over the processes, with the least and the most. Exits 1 if it is
above the goal: 0.3 % of the step, or 30 µs if that is more.

`--flat` takes that many metered steps of a model of one small layer, with batches of eight sizes, and looks at the
resident set every tenth of them. Exits 1 if the last nine tenths add a megabyte.

`--agreement` trains each model in a plain loop under the meter, has `runners.sweep` measure the same cell (batch 4,
fp32, SGD), and runs the loop again. Exits 1 if a step's FLOP differ, or the interval of the sweep's mean meets neither
that of the loop before nor that of the loop after it: between processes a machine differs by more than either interval.

Not claimed: the cost on a GPU, where events are recorded instead of times.
"""

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from measure.meter.meter import MeterSummary, UtilizationMeter
from workloads.sources.any_model import get

GOAL_S, GOAL_RATIO, FLAT_BYTES = 30e-6, 0.003, 1_000_000
SIZES = {"small": (2, 8, 4), "medium": (12, 512, 64)}
"""Name → layers, their width, samples of a batch."""
CELL_BATCH, LOOP_S, LOOP_STEPS = 4, 15.0, 30
WARM = 10
"""Rounds that are not kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(SIZES), default="small")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--agreement", metavar="MODELS", help="hold the meter against the sweep on these models")
    parser.add_argument("--flat", type=int, metavar="STEPS", help="look at memory over so many steps instead")
    options = parser.parse_args(arguments)
    if not options.agreement:
        torch.set_num_threads(1)
    if not options.processes:
        print(*cost_s(options.model, options.rounds))
        return 0
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if options.flat:
        return flat(options.flat)
    if options.agreement:
        agreed = [agreement(model) for model in options.agreement.split(",")]  # all of them, also after one that is not
        return int(not all(agreed))
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


def agreement(name: str) -> bool:
    """Print what the meter and the sweep say of one cell; whether they agree."""
    before = _loop_summary(name)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "runners.sweep", "--models", name, "--batch-sizes", str(CELL_BATCH)]
        subprocess.run([*command, "--device", "cpu", "--out", f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
        (row,) = csv.DictReader(Path(folder, "run", "headline.csv").read_text(encoding="utf-8").splitlines())
        (step,) = csv.DictReader(Path(folder, "run", "step_times.csv").read_text(encoding="utf-8").splitlines()[:2])
    after = _loop_summary(name)
    swept = tuple(float(step[name]) for name in ("mean_s", "low_s", "high_s"))
    loops = [(each.step_time_s, each.step_time_low_s, each.step_time_high_s) for each in (before, after)]
    flop = {float(row["model_flop"]), before.model_flop_per_step, after.model_flop_per_step}
    for what, (mean_s, low_s, high_s) in (("loop", loops[0]), ("sweep", swept), ("loop again", loops[1])):
        print(f"{name}, {what}: {1e3 * (mean_s or 0):.2f} ms ({1e3 * (low_s or 0):.2f} to {1e3 * (high_s or 0):.2f})")
    print(f"  FLOP of a step: {', '.join(f'{each:,.0f}' for each in flop if each)}")
    meets = [low_s and high_s and low_s <= swept[2] and swept[1] <= high_s for _, low_s, high_s in loops]
    return len(flop) == 1 and any(meets)


def _loop_summary(name: str) -> MeterSummary:
    """Of a plain training loop of at least LOOP_S seconds and LOOP_STEPS steps."""
    workload = get(name)
    model = workload.build(**workload.hyper)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    batch = workload.batch(workload.hyper, CELL_BATCH, torch.device("cpu"), None)
    meter = UtilizationMeter(model, energy=False)
    began_s = time.perf_counter()
    steps = 0
    while time.perf_counter() - began_s < LOOP_S or steps < LOOP_STEPS:
        steps += 1
        with meter.step():
            optimizer.zero_grad()
            workload.loss(model(*batch.inputs), batch.target).backward()
            optimizer.step()
    return meter.summary()


def flat(steps: int) -> int:
    """Print memory over the steps; 1 if it grows."""
    model = torch.nn.Linear(8, 8)
    meter = UtilizationMeter(model, energy=False)
    batches = [torch.randn(size, 8) for size in range(1, 9)]
    resident = []
    began_s = time.thread_time()
    for number in range(steps):
        with meter.step():
            model(batches[number % 8]).sum().backward()
        if number % (steps // 10) == steps // 10 - 1:
            meter.window()
            resident.append(resident_bytes())
    print(f"a step, with the model of one layer: {1e6 * (time.thread_time() - began_s) / steps:.0f} us")
    grown = resident[-1] - resident[0]
    print(f"resident, MB, every {steps // 10} steps: {' '.join(f'{each / 1e6:.2f}' for each in resident)}")
    print(f"over the last nine tenths: {grown / 1e3:+.0f} kB")
    return int(grown > FLAT_BYTES)


def resident_bytes() -> int:
    """Of this process, from /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    sys.exit(main())
