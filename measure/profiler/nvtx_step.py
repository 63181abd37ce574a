"""One training step under NVTX ranges, for a profiler around this process (Nsight Systems) to record, and no other.

Steps before it warm up: libraries are loaded, cuDNN has tried its algorithms. Then the profiler is told to begin, torch
writes a range around each operator call with its sizes and autograd number (`emit_nvtx`), and our own ranges stand
around step, phases (`measure/timing/profiler_ranges.py`) and modules (`module_ranges.py`); after the device is done it
is told to stop.

Not claimed: that anything was recorded; without a profiler the ranges go nowhere. On a CPU there is no profiler to be
told and no kernel to be recorded: the step runs between the same ranges, as far as torch writes them there.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from measure.profiler.module_ranges import ModuleRanges
from measure.timing.clocks import Clock
from measure.timing.profiler_ranges import Mark, Ranges, unheard
from results.garbage_collector import collector_off

WARM_STEPS = 3
"""Before the recorded one: the first loads libraries and tries algorithms, the next ones find memory as it will be."""


def record_step(step: Callable[[Mark], Any], model: torch.nn.Module, clock: Clock, *, work: str, cuda: bool) -> None:
    """Run `step` untimed: `WARM_STEPS` times, then once to be recorded.

    step: announces its phases, as for `profiles.profile_step`. model: gets hooks, which are gone afterwards. Raises
    ValueError for a step that announces no phase.
    """
    for _ in range(WARM_STEPS):
        step(unheard)
    clock.synchronize()
    announced: set[str] = set()
    with _captured(cuda), ModuleRanges(model), collector_off():
        ranges = Ranges(True, listening=lambda: True)  # not before: a range's name is told when it is first used
        with ranges.work(work):
            ranges.step(step)(announced.add)
        clock.synchronize()
    if not announced:
        raise ValueError("expected a step that calls mark('forward'), mark('loss'), …; it announced no phase")


@contextlib.contextmanager
def _captured(cuda: bool) -> Iterator[None]:
    """The profiler records, and torch writes its ranges."""
    if not cuda:
        yield
        return
    with torch.cuda.profiler.profile(), torch.autograd.profiler.emit_nvtx(record_shapes=True):
        yield
