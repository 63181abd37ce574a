"""Times of steps without waiting for the device: events that are read once they have completed.

`StepTimes` marks where a step begins and ends and hands on, in order, what has been completed; `Blocks` keeps any
number of steps in bounded memory: blocks of equal numbers of steps, merged in pairs when there are too many, so that
the interval of the mean still comes from block means (`analysis.stats.summary`).

Not claimed: on a GPU a step's time is that between two points of one stream, with the gaps inside of it.
"""

from __future__ import annotations

import collections
import math
import numbers
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from measure.meter.calls import Call, CallKey, Passes, passes_of, samples_of
from measure.meter.observed_costs import Verdict

MAX_BLOCKS = 512

Marked = tuple[Any, Any, list[Call], float | None, bool]
"""A step between its marks: start, end, calls, items (None: those of its inputs), whether it took longer because it was
observed. A plain tuple, made once a step."""


class CpuMarks:
    """Work on a CPU is done when the call returns: host time is all there is. Times in s."""

    mark = staticmethod(time.perf_counter)

    def is_complete(self, _mark: float) -> bool:
        return True

    def wait(self, _mark: float) -> None:
        """What is marked has been done."""

    def between_s(self, start: float, end: float) -> float:
        return end - start

    def free(self, mark: float) -> None:
        """Nothing to give back."""


class CudaMarks:
    """Events on the current stream of a CUDA device, used again after they were read. Resolution 0.5 µs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[Any] = []

    def mark(self) -> Any:
        event: Any = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def is_complete(self, mark: Any) -> bool:
        return bool(mark.query())

    def wait(self, mark: Any) -> None:
        """Wait until the device has come to this mark: the only wait of the meter, and never inside of a loop."""
        mark.synchronize()

    def between_s(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1000  # elapsed_time is in ms

    def free(self, mark: Any) -> None:
        self._free.append(mark)


@dataclass(slots=True)
class StepBlock:
    """Steps in a row, added up. passes: key → its passes. items: samples, or what the caller counts instead.

    unseen: steps in which no pass of the model was seen. given: steps whose items the caller gave. without_items:
    steps whose items are not known; `items` has those of the others. observed, observed_passes: steps whose time was
    not that of a step, since they were observed; they are in no other field but `unseen`.
    """

    steps: int = 0
    time_s: float = 0.0
    outside_s: float = 0.0
    items: float = 0.0
    samples: int = 0
    passes: dict[CallKey, Passes] = field(default_factory=dict)
    unseen: int = 0
    given: int = 0
    without_items: int = 0
    observed: int = 0
    observed_passes: dict[CallKey, Passes] = field(default_factory=dict)

    @property
    def known_items(self) -> float | None:
        """Items of all steps; None where those of a step are not known, or steps count different things."""
        return None if self.without_items or self.given not in (0, self.steps) else self.items

    def add(self, other: StepBlock) -> None:
        self.steps += other.steps
        self.time_s += other.time_s
        self.outside_s += other.outside_s
        self.items += other.items
        self.unseen += other.unseen
        self.given += other.given
        self.without_items += other.without_items
        self.samples += other.samples
        self.observed += other.observed
        add_passes(self.passes, other.passes)
        if other.observed:
            add_passes(self.observed_passes, other.observed_passes)


def add_passes(total: dict[CallKey, Passes], passes: Mapping[CallKey, Passes]) -> None:
    """Add passes to others, key by key."""
    for key, each in passes.items():
        mine = total.get(key)
        if mine is None:
            mine = total[key] = Passes()
        mine.add(each)


class StepBlocks:
    """Any number of steps in at most MAX_BLOCKS blocks of equal numbers of steps, but for the last."""

    def __init__(self) -> None:
        self._blocks: list[StepBlock] = []
        self._length = 1
        self._early = StepBlock()

    @property
    def blocks(self) -> list[StepBlock]:
        """In order. Observed steps before any other are a block of their own only as long as there is no other."""
        return self._blocks or ([self._early] if self._early.observed else [])

    def add_passes(self, passes: Mapping[CallKey, Passes]) -> None:
        """Passes outside of the steps: of the block that is last, or will be the first."""
        add_passes((self._blocks[-1] if self._blocks else self._early).passes, passes)

    def add(self, step: StepBlock) -> None:
        if not step.steps:
            (self._blocks[-1] if self._blocks else self._early).add(step)
            return
        if self._blocks and self._blocks[-1].steps < self._length:
            self._blocks[-1].add(step)
            return
        if len(self._blocks) == MAX_BLOCKS:
            pairs = list(zip(self._blocks[::2], self._blocks[1::2], strict=True))
            for first, second in pairs:
                first.add(second)
            self._blocks = [first for first, _ in pairs]
            self._length *= 2
        fresh, self._early = self._early, StepBlock()
        fresh.add(step)
        self._blocks.append(fresh)


@dataclass
class _Since:
    """Steps with calls of one kind since it was last observed."""

    steps: int = 0
    passes: Passes = field(default_factory=Passes)


class Stretch:
    """Steps, added up. lost_steps: those whose FLOP are not known any more, lost: what passes they had, and why."""

    def __init__(self) -> None:
        self._steps = StepBlocks()
        self._since: dict[CallKey, _Since] = {}
        self.lost_steps = 0
        self.lost: dict[CallKey, Passes] = {}
        self.why_lost = ""

    @property
    def blocks(self) -> list[StepBlock]:
        return self._steps.blocks

    def add(self, step: StepBlock) -> None:
        """A step that has completed."""
        self._steps.add(step)
        for passes in (step.passes, step.observed_passes):
            for key, each in passes.items():
                since = self._since.get(key)
                if since is None:
                    since = self._since[key] = _Since()
                since.steps += 1
                since.passes.add(each)

    def add_late(self, key: CallKey) -> None:
        """A backward pass of a step that has ended."""
        self._steps.add_passes({key: Passes(late=1)})

    def observed(self, verdict: Verdict) -> None:
        """The last step was observed."""
        lost = {key: self._since.get(key, _Since()) for key in verdict.differing}
        for key in verdict.seen:
            self._since.pop(key, None)
        for key, since in lost.items():
            self.lost.setdefault(key, Passes()).add(since.passes)
        self.why_lost = verdict.reason or self.why_lost
        self.lost_steps += max((since.steps for since in lost.values()), default=0)


class StepTimes:
    """Marks steps, and gives those that the device has completed."""

    def __init__(self, marks: CpuMarks | CudaMarks) -> None:
        self._marks = marks
        self.mark = marks.mark
        self.pending: collections.deque[Marked | Verdict | float] = collections.deque()
        self._before: Any = None  # the end of the step before the next one to be completed
        self._excluded_s = self._outside_s = 0.0

    def exclude(self, seconds: float) -> None:
        """So many seconds after the last step are not the loop's."""
        self.pending.append(seconds)

    def completed(self, wait: bool = False) -> Iterator[StepBlock | Verdict]:
        """Steps that have completed, in order, and after one that was observed what came of that.

        wait: for all of them. It waits for the end of the last step that was begun, and not for the device: work that
        was given to it afterwards may go on. For the end of a loop (`UtilizationMeter.summary`), never inside of one.
        """
        while self.pending:
            marked = self.pending[0]
            if isinstance(marked, float):
                self.pending.popleft()
                self._excluded_s += marked
                continue
            if isinstance(marked, Verdict):
                self.pending.popleft()
                yield marked
                continue
            start, end, calls, items, is_observed = marked
            if wait:
                self._marks.wait(end)
            elif not self._marks.is_complete(end):
                return
            self.pending.popleft()
            if self._before is not None:
                self._outside_s += max(0.0, self._marks.between_s(self._before, start) - self._excluded_s)
                self._marks.free(self._before)
            self._before, self._excluded_s = end, 0.0
            passes = passes_of(calls)
            if is_observed:
                self._marks.free(start)
                yield StepBlock(observed=1, observed_passes=passes, unseen=int(not passes))
                continue
            outside_s, self._outside_s = self._outside_s, 0.0
            samples, time_s = samples_of(calls), self._marks.between_s(start, end)
            given = items is not None
            counted: Any = samples if items is None else items
            known = isinstance(counted, numbers.Real) and 0 <= float(counted) < math.inf and bool(given or samples)
            yield StepBlock(
                1, time_s, outside_s, counted if known else 0.0, samples, passes, int(not passes), int(given),
                int(not known),
            )  # fmt: skip
            self._marks.free(start)


def all_of(blocks: Iterable[StepBlock]) -> StepBlock:
    """The blocks added up."""
    whole = StepBlock()
    for block in blocks:
        whole.add(block)
    return whole
