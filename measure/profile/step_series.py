"""Runs a step again and again: timed one by one, then under torch's profiler. What Fathom's instrumented step does.

Warm-up is kept and marked, not thrown away: the first steps' times say what warming up costs. Processor time is of
all threads of this process. Not claimed: that a plain step and a profiled one take the same; both are reported.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from measure.profiler.work_profiles import check_available, kernel_device
from measure.timing.clocks import Clock, clock_for
from measure.timing.profiler_ranges import Ranges, unheard
from results.garbage_collector import collector_off

Step = Callable[[Callable[[str], None]], Any]


@dataclass(frozen=True)
class StepTiming:
    """One step without a profiler, in s. cpu_s: of all threads."""

    time_s: float
    cpu_s: float


@dataclass(frozen=True)
class RecordedSteps:
    """The parts of a recording. profile: torch's `_ProfilerResult` of the profiled steps; None: none was asked for.

    energy_j: that the device's counter rose by over the plain steps; None without one. profiled_cpu_s: processor time
    of all threads, a number a profiled step.
    """

    warm_up: tuple[StepTiming, ...]
    plain: tuple[StepTiming, ...]
    profile: Any
    energy_j: float | None = None
    profiled_cpu_s: tuple[float, ...] = ()


def record(
    step: Step,
    device: str,
    *,
    warm_up: int,
    plain: int,
    profiled: int,
    before: Callable[[], None] = lambda: None,
    energy_j: Callable[[], float | None] = lambda: None,
) -> RecordedSteps:
    """Run the step: warm_up, then plain steps, then profiled ones. before: called before each, untimed.

    energy_j: reads the device's counter. Raises Unavailable where nothing can be profiled.
    """
    cuda = device.startswith("cuda")
    if profiled:
        check_available(cuda)
    clock = clock_for(device)
    with collector_off():
        first = tuple(_time_steps(step, clock, warm_up, before))
        from_j = energy_j()
        then = tuple(_time_steps(step, clock, plain, before))
        to_j = energy_j()
        profile, cpu_s = _profiled(step, clock, profiled, before, cuda) if profiled else (None, ())
    spent_j = None if from_j is None or to_j is None else to_j - from_j
    return RecordedSteps(first, then, profile, spent_j, cpu_s)


def _time_steps(step: Step, clock: Clock, count: int, before: Callable[[], None]) -> Iterator[StepTiming]:
    for _ in range(count):
        before()
        clock.synchronize()
        start_s, start_cpu_s = clock.wall_s(), time.process_time()
        step(unheard)
        clock.synchronize()
        yield StepTiming(clock.wall_s() - start_s, time.process_time() - start_cpu_s)


def _profiled(
    step: Step, clock: Clock, count: int, before: Callable[[], None], cuda: bool
) -> tuple[Any, tuple[float, ...]]:
    profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(cuda))
    ranged = Ranges(True).step(step)
    cpu_s = []
    with profiler:
        for _ in range(count):
            before()
            clock.synchronize()
            start_cpu_s = time.process_time()
            ranged()
            clock.synchronize()
            cpu_s.append(time.process_time() - start_cpu_s)
    return profiler.kineto_results, tuple(cpu_s)
