"""What the harness adds to a training step: its step time ÷ that of the same loop written by hand.

    python -m benchmarks.overhead --model resnet18 --batch-size 8 [--device cpu] [--seconds 60]

Both loops train the same model on the same batch with the same clock: A is zero_grad, forward, loss, backward and step,
nothing else; B is `measure_blocks` over a `TrainingStep` under ranges (which cost something on CUDA only). Blocks come
as A B B A: a machine that gets slower or faster at a constant rate does not move their ratio. Reported is the median
ratio with a 95 % interval from order statistics, because a neighbour's burst of load makes a few ratios wild; goal: at
most 1.01. Prints the ratio with its command, machine and versions; exits 1 if the goal is missed for certain.

Not claimed: what a profiler adds, or the tracer.
"""

import argparse
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

import torch

from analysis.stats.summary import median_interval
from measure.device.environment import cpu_name, package_version
from measure.timing.blocks import measure_blocks, warm_up
from measure.timing.clocks import Clock, clock_for
from measure.timing.profiler_ranges import Ranges
from measure.timing.stopping import Protocol, step_time_s
from workloads import torchvision_models as vision_models
from workloads.step import OPTIMIZERS, TrainingStep

GOAL_RATIO = 1.01

Seconds = Callable[[int], float]
"""Steps → measured seconds a step."""


def loops(model: str, batch_size: int, device: str, clock: Clock) -> tuple[Seconds, Seconds, float]:
    """(A, the bare loop; B, the harness; a step's time after warming up) on one model."""
    workload = vision_models.get(model)
    where = torch.device(device)
    network = workload.build(**workload.hyper).to(where)
    batch = workload.batch(workload.hyper, batch_size, where, torch.Generator(where).manual_seed(0))
    optimizer = OPTIMIZERS["sgd"](network.parameters())
    protocol = Protocol.for_device(device)
    step = Ranges(where.type == "cuda").step(TrainingStep(network, workload.loss, optimizer, [batch], where.type))

    def bare() -> None:
        optimizer.zero_grad(set_to_none=True)
        workload.loss(network(*batch.inputs), batch.target).backward()
        optimizer.step()

    warm_step_s = warm_up(step, clock, protocol).step_s
    return (
        lambda steps: bare_step_s(bare, clock, steps, protocol.lead_in_steps),
        lambda steps: harness_step_s(step, clock, steps, protocol),
        warm_step_s,
    )


def bare_step_s(step: Callable[[], None], clock: Clock, steps: int, lead_in_steps: int) -> float:
    """Seconds a step of a plain loop, by the clock that the harness uses, the collector off as there."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(lead_in_steps):
            step()
        begun_s, start = clock.wall_s(), clock.event()
        for _ in range(steps):
            step()
        end = clock.event()
        clock.synchronize()
        wall_s, device_s = clock.wall_s() - begun_s, clock.between_s(start, end)
    finally:
        gc.enable()
    return (wall_s if device_s is None else device_s) / steps


def harness_step_s(step: Callable[[], None], clock: Clock, steps: int, protocol: Protocol) -> float:
    """Seconds a step as the harness reports them, from one block of so many steps."""
    block_s = (steps - 0.5) / 1.05  # at 1 s a step and 5 % to spare, the block that holds `steps`
    once = replace(protocol, block_s=block_s, min_blocks=1, min_time_s=0.0, cap_s=0.0)
    (block,) = measure_blocks(step, clock, once, step_s=1.0).blocks
    if block.steps != steps:
        raise ValueError(f"expected a block of {steps} steps, got {block.steps}")
    return step_time_s(block)


def paired_ratios(a: Seconds, b: Seconds, steps: int, clock: Clock, seconds: float) -> Iterator[float]:
    """(B + B) ÷ (A + A) of each A B B A, until the time is over; three at least."""
    begun_s = clock.wall_s()
    done = 0
    while done < 3 or clock.wall_s() - begun_s < seconds:
        first_a, first_b, second_b, second_a = a(steps), b(steps), b(steps), a(steps)
        yield (first_b + second_b) / (first_a + second_a)
        done += 1


def machine(device: str) -> str:
    """Where the number was taken: device, cores, load, versions."""
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu_name()
    versions = ", ".join(f"{name} {package_version(name)}" for name in ("torch", "torchvision", "nvtx"))
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{where}, {torch.get_num_threads()} threads, load {load}; Python {platform.python_version()}, {versions}"


def verdict(ratios: Sequence[float]) -> tuple[str, bool]:
    """The median ratio with its interval and what that says about the goal, and whether the goal is missed."""
    found = median_interval(ratios)
    if found is None:
        return f"median of {len(ratios)} A B B A: {median(ratios):.4f}, too few for an interval", False
    low, middle, high = found
    said = "met" if high <= GOAL_RATIO else "missed" if low > GOAL_RATIO else "neither shown nor refuted"
    return (
        f"step time in the harness / bare loop: {middle:.4f} [{low:.4f}, {high:.4f}] (median and 95 % interval of "
        f"{len(ratios)} A B B A); goal at most {GOAL_RATIO}: {said}"
    ), low > GOAL_RATIO


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    clock = clock_for(options.device)
    a, b, step_s = loops(options.model, options.batch_size, options.device, clock)
    steps = max(1, round(0.5 / step_s))
    said, missed = verdict(list(paired_ratios(a, b, steps, clock, options.seconds)))
    print(said)
    print(f"command: python -m benchmarks.overhead {' '.join(arguments)}".rstrip() + f" ({steps} steps a block)")
    print(f"machine: {machine(options.device)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
