"""Times the steps of a loop and reads the device's energy without waiting: events are read once they have completed.

The user's loop enters a `MeteredStep` around each step, which it gets from the meter (`UtilizationMeter.step`).
`MeteredStep` marks where a step begins and ends on a clock. `CompletedSteps` yields a `StepBlock` for each step that
has completed, in order. `Stretch` adds up any number of steps in bounded memory, in blocks of equal numbers of steps.
Blocks are merged in pairs when there are too many. The interval of the mean comes from the means of these blocks
(`analysis.stats.summary`). `LoopEnergy` takes a device, reads its energy counter at the ends of windows, and returns
mean power. On a GPU a step's time is the time between two points of one stream, gaps included. Not claimed: energy of
other parts of the machine, or of other work on the device.
"""

from __future__ import annotations

import collections
import math
import numbers
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

from measure.device.telemetry import open_device
from measure.meter.calls import ModelCall, Passes, add_passes, passes_of, samples_of
from measure.meter.observations import ObservationVerdict
from measure.timing.clocks import Clock
from results.errors import Unavailable
from results.records.cell import Telemetry

MAX_BLOCKS = 512

PENDING_STEPS, PENDING_CALLS = 32, 256
"""Numbers of steps, and of calls of one step, that wait to be added up together. This costs a fraction of adding them
one by one."""

Marked = tuple[Any, Any, list[ModelCall], float | None, bool]
"""A step between its marks: start, end, calls, items (None: the items of its inputs), and whether the meter observed
the step, which makes it longer. It is a plain tuple, made once per step."""


class MeteredStep:
    """The context of one step; a meter uses one object for all steps.

    owner: the meter. begun: the mark where the open step began; None if no step is open, and then calls are not noted.
    calls: the calls of the step so far. left: number of next steps whose marks and calls are only stored; at 0 the
    owner prepares and ends the next step. number: steps that have ended. unchanged: steps in which the weight was not
    written. inputs, items: as in `UtilizationMeter.step`.
    """

    __slots__ = ("_owner", "_pending", "_updated", "_weight", "begun", "calls", "inputs", "items", "left", "mark",
                 "number", "unchanged")  # fmt: skip

    def __init__(self, owner: Any, times: CompletedSteps, weight: torch.Tensor) -> None:
        self.begun: Any = None
        self.calls: list[ModelCall] = []
        self._weight, self._updated, self.unchanged = weight, weight._version, 0
        self._owner = owner
        self._pending = times.pending
        self.mark = times.clock.event
        self.left = self.number = 0
        self.inputs: tuple[Any, ...] = ()
        self.items: float | None = None

    def __enter__(self) -> None:
        try:
            if (self.left == 0 or self.begun is not None) and not self._owner.prepare_step():
                return
            self.calls = []
            self.begun = self.mark()
        except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
            self._owner.fail(fault)

    def __exit__(
        self, kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        start = self.begun
        try:
            if start is None or kind is not None:
                self._owner.drop_step()
            else:
                end = self.mark()
                self.begun = None
                self.number += 1
                version = self._weight._version
                self.unchanged += version == self._updated
                self._updated = version
                for call in self.calls:
                    call.is_over = True
                if self.left and 0 < len(self.calls) <= PENDING_CALLS:
                    self._pending.append((start, end, self.calls, self.items, False))
                    self.left -= 1
                else:
                    self._owner.end_step(start, end)
            self.inputs = ()
        except Exception as fault:  # noqa: BLE001  as above
            self._owner.fail(fault)


@dataclass
class StepBlock:
    """Consecutive steps, added up. items: samples, or what the caller counts instead.

    unseen: steps in which no pass of the model was seen. given: steps whose items the caller gave. without_items: steps
    whose items are not known; `items` has those of the others. observed, observed_passes: steps that took longer
    because they were observed; they are in no other field but `unseen`.
    """

    steps: int = 0
    time_s: float = 0.0
    outside_s: float = 0.0
    items: float = 0.0
    unseen: int = 0
    given: int = 0
    without_items: int = 0
    observed: int = 0
    passes: Passes = field(default_factory=dict)
    observed_passes: Passes = field(default_factory=dict)

    def add(self, other: StepBlock) -> None:
        sums = vars(self)
        for name, value in vars(other).items():
            if type(value) is dict:
                add_passes(sums[name], value)
            elif value:
                sums[name] += value


class Stretch:
    """Any number of steps, added up in at most MAX_BLOCKS blocks of equal numbers of steps, except for the last block.

    blocks: in order. lost_steps: number of steps whose FLOP became unknown; lost: their passes; why_lost: the reason.
    """

    def __init__(self) -> None:
        self.blocks = [StepBlock()]
        self._length = 1
        self._since: Passes = {}  # since each kind of call was last observed
        self.lost_steps = 0
        self.lost: Passes = {}
        self.why_lost = ""

    def add(self, step: StepBlock) -> None:
        """Add a step that has completed."""
        add_passes(self._since, step.passes or step.observed_passes)
        if step.steps and self.blocks[-1].steps == self._length:
            if len(self.blocks) == MAX_BLOCKS:
                for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
                    first.add(second)
                self.blocks = self.blocks[::2]
                self._length *= 2
            self.blocks.append(StepBlock())
        self.blocks[-1].add(step)

    def observed(self, verdict: ObservationVerdict) -> None:
        """Apply the verdict on the last step, which was observed, to the steps since the observation before."""
        lost: Passes = {}
        for call_phase in [call_phase for call_phase in self._since if call_phase[0] in verdict.seen]:
            times = self._since.pop(call_phase)
            if call_phase[0] in verdict.differing:
                lost[call_phase] = times
        add_passes(self.lost, lost)
        self.why_lost = verdict.reason or self.why_lost
        self.lost_steps += max((times for (_, what), times in lost.items() if what == "steps"), default=0)


class CompletedSteps:
    """Yields marked steps once the device has completed them. pending: steps that wait, verdicts on observed ones, and
    seconds after the last step that are not the loop's."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.pending: collections.deque[Marked | ObservationVerdict | float] = collections.deque()
        self._before: Any = None  # the end of the step before the next one to be completed
        self._excluded_s = self._outside_s = 0.0

    def completed(self, wait: bool = False) -> Iterator[StepBlock | ObservationVerdict]:
        """Yield steps that have completed, in order, each observed one followed by its verdict.

        wait: whether to wait until all steps have completed. Work that was submitted to the device after the last step
        may go on. Use it at the end of a loop (`UtilizationMeter.summary`), never inside one.
        """
        while self.pending:
            marked = self.pending[0]
            if isinstance(marked, tuple) and not self.clock.has_passed(marked[1], wait):
                return
            self.pending.popleft()
            if isinstance(marked, float):
                self._excluded_s += marked
            else:
                yield marked if isinstance(marked, ObservationVerdict) else self._block(*marked)

    def _block(self, start: Any, end: Any, calls: list[ModelCall], given: float | None, is_observed: bool) -> StepBlock:
        if self._before is not None:
            self._outside_s += max(0.0, self._between_s(self._before, start) - self._excluded_s)
        self._before, self._excluded_s = end, 0.0
        passes = passes_of(calls)
        unseen = int(not passes)
        if is_observed:
            return StepBlock(observed=1, observed_passes=passes, unseen=unseen)
        outside_s, self._outside_s = self._outside_s, 0.0
        items: Any = samples_of(calls) if given is None else given
        known = isinstance(items, numbers.Real) and 0 <= float(items) < math.inf and bool(given is not None or items)
        return StepBlock(
            1, self._between_s(start, end), outside_s, items if known else 0.0, unseen, int(given is not None),
            int(not known), passes=passes,
        )  # fmt: skip

    def _between_s(self, start: Any, end: Any) -> float:
        """Return the seconds between two marks, by the host's clock where the device has none."""
        device_s = self.clock.between_s(start, end)
        return float(end - start) if device_s is None else device_s


def merged_block(blocks: Iterable[StepBlock]) -> StepBlock:
    """Return the blocks added up."""
    whole = StepBlock()
    for block in blocks:
        whole.add(block)
    return whole


class LoopEnergy:
    """Mean power over a loop and over its windows, or the reason why there is none. device: "": nothing is read.

    After `close` the whole loop's power stays as it was.
    """

    def __init__(self, device: str) -> None:
        self._telemetry: Any = None
        self._reason = "no energy: no step was completed after the warm-up" if device else ""
        self._start: Telemetry | None = None
        self._window: Telemetry | None = None
        self._final: Telemetry | None = None
        try:
            self._telemetry = open_device(device) if device else None
        except Unavailable as reason:
            self._reason = f"no energy: {reason}"

    def start(self) -> None:
        """Start with the first step that counts."""
        self._start = self._window = self._read()

    def mean_power(self, of_window: bool = False) -> tuple[float | None, str]:
        """Return (power in W, ""), or (None, why it is unknown), since the start or the last call for a window."""
        before, now = self._window if of_window else self._start, self._read()
        if of_window:
            self._window = now
        if now is None or before is None or not now.time_s > before.time_s:
            return None, self._reason
        if now.energy_j is not None and before.energy_j is not None:
            power_w = (now.energy_j - before.energy_j) / (now.time_s - before.time_s)
            if math.isfinite(power_w) and power_w >= 0:
                return power_w, ""
        return None, "no energy: the device has no energy counter that increases"

    def close(self) -> None:
        """Read once more, and release the device."""
        if self._telemetry is not None:
            self._final = self._read()
            self._telemetry.close()
            self._telemetry = None

    def _read(self) -> Telemetry | None:
        if self._telemetry is None:
            return self._final
        try:
            reading: Telemetry = self._telemetry.poll()
            return reading
        except Unavailable as reason:
            self._reason = f"no energy: {reason}"
            return None
