"""What starting work costs: an operation on one element, call after call, seen from the device and from the host.

`launch` is the device's view: the time between two events ÷ the kernels between them; where the host is slower than the
device, that is the host's pace. `call` is the host's: how long torch takes to hand one over, on a CPU to do it. Both
are the least that an operation of a step takes, however small it is.

Not claimed: what a kernel costs inside a CUDA graph, or an operation under autograd or Python modules, which are more.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from measure.ceiling.ceilings import Bench, with_times
from results.records.samples import Ceiling

IN_A_ROW = 500
"""Calls timed together; fewer than a CUDA stream takes before the host has to wait."""

MOST_BLOCKS = 20

LAUNCH, CALL = "launch", "call"


def operations(device: str) -> tuple[str, ...]:
    """The views that a device has."""
    return (LAUNCH, CALL) if device.startswith("cuda") else (CALL,)


def row(bench: Bench, blank: Ceiling, operation: str, trials_left: int) -> Ceiling:
    """`blank` with the time of one launch or call, in its share of the time that the bench has left."""
    blank = replace(blank, operation=operation, shape=f"{IN_A_ROW} times add_ on one element")

    def measure_launches(until_s: float) -> Ceiling:
        x = torch.ones(1, device=bench.device)

        def calls() -> None:
            for _ in range(IN_A_ROW):
                x.add_(1.0)

        times_s = (
            bench.call_times_s(calls, until_s, cold=False) if operation == LAUNCH else _host(bench, calls, until_s)
        )
        return with_times(blank, [time_s / IN_A_ROW for time_s in times_s])

    return bench.guarded(blank, trials_left, measure_launches)


def _host(bench: Bench, calls: Callable[[], None], until_s: float) -> list[float]:
    """Seconds until the host has handed the calls over, block after block."""
    calls()
    bench.clock.synchronize()
    times_s: list[float] = []
    while not times_s or (len(times_s) < MOST_BLOCKS and bench.clock.wall_s() + times_s[-1] < until_s):
        begun_s = bench.clock.wall_s()
        calls()
        times_s.append(bench.clock.wall_s() - begun_s)
        bench.clock.synchronize()
    return times_s
