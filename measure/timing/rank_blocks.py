"""Times blocks of a step that several ranks run together, and pairs blocks of a ceiling's kernels with those of a step.

Times differ per rank, so the first rank decides how long to warm up, how many steps a block has and when to stop. The
first rank uses the functions of `blocks.py`, with `announce`. The other ranks run `follow_orders`, which returns their
`Sample`s, and `join_blocks` combines all ranks. Ranks leave one barrier within some tens of microseconds. A ceiling is
the highest rate of single kernels on this device. `CeilingBlocks` alternates such kernels C with the step S (C S, S C,
C S, …), so that drift meets both alike. A kernel's block lasts BLOCK_SHARE of a step's block. Not claimed: that a
neighbour slows down a kernel as much as a step. On few shared processors it does not: threads of a step wait for each
other at each of its operations.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from analysis.utilization.step_times import ASIDE, paired_ceiling
from measure.timing.blocks import BlockTimer, Step, block_of, collector_off, phase_block, steps_for
from measure.timing.clocks import Clock
from measure.timing.disturbance import SUSPENDED, SuspensionWatch, disturbance, since
from measure.timing.stopping import Protocol, Timing, step_time_s
from results.errors import Inconsistent
from results.records.cell import Sample

END = "end"
"""`part` of the last order."""


@dataclass(frozen=True)
class BlockOrder:
    """A block to run now; part END: there are no more blocks."""

    steps: int
    part: str
    lead_in_steps: int = 0


def follow_orders(step: Step, clock: Clock, order: Callable[[], BlockOrder]) -> list[Sample]:
    """Run each block that is ordered, until the order to end, and return the samples of this rank's blocks, in order.

    order: waits for the next order. A block in which this process was suspended has the part "suspended".
    """
    blocks: list[Sample] = []
    with collector_off(), SuspensionWatch() as watch:
        while (ordered := order()).part != END:
            watch.was_suspended()
            before = disturbance()
            if ordered.part == "phase":
                samples = phase_block(step, clock, ordered.steps, ordered.lead_in_steps)
            else:
                block = block_of(step, clock, ordered.steps, ordered.part, ordered.lead_in_steps)
                samples = [replace(block, **since(before, disturbance()))]
            blocks += [replace(sample, part=SUSPENDED) for sample in samples] if watch.was_suspended() else samples
            gc.collect()
    return blocks


def join_blocks(ranks: Sequence[Sequence[Sample]]) -> tuple[list[list[Sample]], list[Sample]]:
    """Return the blocks of each rank, with the same `part` on all ranks, and the blocks of the parallel step.

    A block of whole steps is "suspended" if any rank was suspended, since the others waited for it, and "disturbed" or
    "moved" if the first rank set it aside. A block of the parallel step has the time of the slowest rank, and part and
    start of the first rank. Phases, and blocks that the first rank set aside, are those of the first rank.

    ranks: the blocks of the first rank, in any order, then those of each other rank, in the order in which they ran.
    Raises Inconsistent if the ranks' numbers of blocks or steps differ.
    """
    whole = [[block for block in blocks if not block.phase] for blocks in ranks]
    whole[0].sort(key=lambda block: block.start_s)
    for blocks in whole:
        if [block.steps for block in blocks] != [block.steps for block in whole[0]]:
            raise Inconsistent(
                f"expected {len(whole[0])} blocks of equal steps on all ranks, got {len(blocks)} on another"
            )
    parts: dict[int, str] = {}
    slowest = []
    for own, *others in zip(*whole, strict=True):
        part = SUSPENDED if any(block.part == SUSPENDED for block in (own, *others)) else own.part
        if part == SUSPENDED or part in ASIDE:
            parts |= {id(block): part for block in (own, *others)}
        longest = own if own.part in ASIDE else max((own, *others), key=step_time_s)
        slowest.append(replace(longest, part=part, start_s=own.start_s))
    agreed = [[replace(block, part=parts.get(id(block), block.part)) for block in blocks] for blocks in ranks]
    return agreed, [*slowest, *(block for block in ranks[0] if block.phase)]


CEILING = "ceiling"
"""`part` of a block of a ceiling's kernel."""

BLOCK_SHARE = 0.2
"""Time of a kernel's block ÷ time of a step's block. (Blocks of 40 ms next to steps of seconds caused most of the
ratio's interval.)"""

LEAD_IN_CALLS = 1
"""Untimed calls of a kernel before each of its blocks, which fill the caches after the step. (After ResNet-18's step,
batch 4, on an Intel Xeon, a block of seven calls was 16 % slower than the next one, and 4 % with one such call.)"""


@dataclass(frozen=True)
class CeilingKernel:
    """One kernel: its unit, its name (as in `Ceiling`), the FLOP of one call."""

    unit: str
    name: str
    flop: int
    call: Callable[[], Any]


class CeilingBlocks:
    """Blocks of kernels, made while it is entered. samples: all of them, in order; `steps` are calls.

    protocol: the rules of the steps with which they are paired. share: time of a kernel's block ÷ that of a step's
    block.
    """

    def __init__(
        self, kernels: Sequence[CeilingKernel], clock: Clock, protocol: Protocol, share: float = BLOCK_SHARE
    ) -> None:
        self._kernels, self._protocol, self._share = kernels, protocol, share
        self._timers = [BlockTimer(kernel.call, clock) for kernel in kernels]
        self._calls_s: list[float] = []
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        for timer in self._timers:
            timer.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        for timer in reversed(self._timers):
            timer.__exit__(*fault)

    def warm_up(self) -> None:
        """Run two calls of each kernel, which give no sample: the first may search algorithms, and the time of the
        second sets the number of calls in a block."""
        for timer in self._timers:
            timer.block(1, CEILING)
        self._calls_s = [step_time_s(timer.block(1, CEILING)) for timer in self._timers]

    def run(self, block_s: float) -> None:
        """Run one block of each kernel. block_s: duration of the step's block with which it is paired, s."""
        if not self._calls_s:
            self.warm_up()
        for n, (kernel, timer) in enumerate(zip(self._kernels, self._timers, strict=True)):
            block = timer.block(steps_for(self._share * block_s, self._calls_s[n]), CEILING, LEAD_IN_CALLS)
            self._calls_s[n] = step_time_s(block)
            self.samples.append(replace(block, unit=kernel.unit, kernel=kernel.name, flop=block.steps * kernel.flop))

    def half_width_ratio(self, blocks: Sequence[Sample]) -> float | None:
        """Return half of the 95 % interval of the paired utilization, on a logarithmic scale. None without two pairs.

        blocks: those of the step that are paired with these kernels.
        """
        paired = paired_ceiling((*blocks, *self.samples), self._protocol.interval_rule)
        return None if paired is None else paired.half_width_ratio


def step_time_warning(timing: Timing, protocol: Protocol) -> str:
    """Return a warning on a cell whose ratio to the kernels has the requested precision while its step time has not;
    otherwise ""."""
    width = timing.summary.half_width_ratio
    if timing.status != "ok" or (width is not None and width <= protocol.target_ci_ratio):
        return ""
    shown = "unknown" if width is None else f"±{width:.2%}"
    return (
        f"step_time: its own interval is {shown}, wider than ±{protocol.target_ci_ratio:.2%}, and that of the paired "
        "utilization is not: the machine was slower and faster by turns, for the ceiling's kernels, too"
    )
