"""Runs a step again and again: timed one by one, then under torch's profiler. What Fathom's instrumented step does.

Warm-up is kept and marked, not thrown away: the first steps' times say what warming up costs. Processor time is of
all threads of this process. Not claimed: that a plain step and a profiled one take the same; both are reported.

`time_operations` times a step's operations each alone: a dispatch mode sees each call, and the first of its kind
(operator, sizes, dtypes, other arguments) is run again a few times on copies of its tensors. The sum of counts × times
is the step as these would have it. The step itself goes on as ever: copies take what in-place calls change, random
numbers are put back. Not claimed: that caches are as in the step, nor times of calls that give views alone.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from analysis.operators.registry import kind_of
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


REPEATS = 5


@dataclass(frozen=True)
class LoneOperation:
    """All calls of one kind. time_s: median of one alone; None where it could not be run again."""

    name: str  # "aten.addmm"
    phase: str
    sizes: str
    calls: int
    time_s: float | None


def time_operations(
    step: Callable[[Callable[[str], None]], Any], device: str, repeats: int = REPEATS
) -> list[LoneOperation]:
    """Run the step once under the mode. Raises what the step raises."""
    mode = _Mode(clock_for(device), repeats)
    with mode:
        step(mode.enter)
    return [LoneOperation(*key[:3], calls=mode.calls[key], time_s=mode.times[key]) for key in mode.calls]


class _Mode(TorchDispatchMode):
    def __init__(self, clock: Clock, repeats: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._repeats = repeats
        self._phase = "optimizer"
        self.calls: dict[tuple[str, str, str, str], int] = {}
        self.times: dict[tuple[str, str, str, str], float | None] = {}

    def enter(self, phase: str) -> None:
        self._phase = phase
        unheard(phase)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.replace("::", ".")
        if kind_of(name) != "view":
            sizes, others = _described((args, kwargs))
            key = (name, self._phase, sizes, others)
            if key not in self.calls:
                self.times[key] = self._call_time_s(func, args, kwargs)
            self.calls[key] = self.calls.get(key, 0) + 1
        return func(*args, **kwargs)

    def _call_time_s(self, func: Any, args: Any, kwargs: Any) -> float | None:
        state = torch.get_rng_state()
        times = []
        try:
            for _ in range(self._repeats + 1):
                copied_args, copied_kwargs = tree_map(_copy, args), tree_map(_copy, kwargs)
                self._clock.synchronize()
                start_s = self._clock.wall_s()
                func(*copied_args, **copied_kwargs)
                self._clock.synchronize()
                times.append(self._clock.wall_s() - start_s)
        except RuntimeError:  # an operator that refuses copies of what it was given
            return None
        finally:
            torch.set_rng_state(state)
        return statistics.median(times[1:])


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _described(arguments: Any) -> tuple[str, str]:
    """Sizes and dtypes of the tensors, and the other arguments, as text."""
    leaves = tree_leaves(arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = " ".join(f"{'x'.join(map(str, t.shape)) or '1'}:{str(t.dtype)[6:]}" for t in tensors)
    return sizes, repr([leaf for leaf in leaves if isinstance(leaf, int | bool | str)])
