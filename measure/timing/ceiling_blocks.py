"""Blocks of a ceiling's kernels between the blocks of a step: C S, S C, C S, …, so that drift meets both alike.

A machine whose clock falls, or that a neighbour slows down, is slower for both; their ratio is not. Each kernel gets a
block of BLOCK_SHARE of a step's block, one call at least, beside each of these. Kernels run with warm caches, as they
do within a step.

Not claimed: that a neighbour slows down one kernel as much as a step of many. On few shared processors it does not: the
threads of a step wait for each other at each of its operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from analysis.utilization.paired_ceiling import paired_ceiling
from measure.timing.blocks import BlockTimer, step_time_s, steps_for
from measure.timing.clocks import Clock
from measure.timing.protocols import Protocol
from results.records import Sample

CEILING = "ceiling"
"""The part of a block of a ceiling's kernel."""

BLOCK_SHARE = 0.2
"""Of the time of a step's block that a kernel's block has."""


@dataclass(frozen=True)
class CeilingKernel:
    """One kernel: its unit, what was run (as `Ceiling` names it), the FLOP of one call."""

    unit: str
    name: str
    flop: int
    call: Callable[[], Any]


class CeilingBlocks:
    """Blocks of kernels, made while it is entered. samples: all of them, in order; `steps` are calls.

    protocol: the rules of the steps that they are timed beside.
    """

    def __init__(self, kernels: Sequence[CeilingKernel], clock: Clock, protocol: Protocol) -> None:
        self._kernels, self._protocol = kernels, protocol
        self._timers = [BlockTimer(kernel.call, clock) for kernel in kernels]
        self._calls: list[int] = []
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        for timer in self._timers:
            timer.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        for timer in reversed(self._timers):
            timer.__exit__(*fault)

    def run(self) -> None:
        """One block of each kernel."""
        if not self._calls:
            self._calls = [self._calls_of(timer) for timer in self._timers]
        for kernel, timer, calls in zip(self._kernels, self._timers, self._calls, strict=True):
            block = timer.block(calls, CEILING)
            self.samples.append(replace(block, unit=kernel.unit, kernel=kernel.name, flop=calls * kernel.flop))

    def half_width_ratio(self, blocks: Sequence[Sample]) -> float | None:
        """Half of the 95 % interval of the paired utilization, on a logarithmic scale. None without two pairs.

        blocks: those of the step that these kernels were timed beside.
        """
        paired = paired_ceiling((*blocks, *self.samples), self._protocol.interval_rule)
        return None if paired is None else paired.half_width_ratio

    def _calls_of(self, timer: BlockTimer) -> int:
        """Of a block: by the time of a second call, since the first may search algorithms."""
        timer.block(1, CEILING)
        return steps_for(BLOCK_SHARE * self._protocol.block_s, step_time_s(timer.block(1, CEILING)))
