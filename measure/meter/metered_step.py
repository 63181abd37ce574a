"""The context of one step: what a meter does in each step of a loop.

In a step of 10 ms nothing of this is in a cache: each function called and each object looked at costs more than what
is done with it. So both methods call as little as they can, and look at this object alone; what is to be done after
some of the steps is the meter's.
"""

from types import TracebackType
from typing import Any, Protocol

import torch

from measure.meter.calls import OpenStep
from measure.meter.step_times import StepTimes

KEPT_STEPS, KEPT_CALLS = 32, 256
"""Steps that wait to be added up, and calls of one step: together they cost a fraction of what they cost one by one."""


class StepOwner(Protocol):
    """What a step asks of its meter."""

    def prepare_step(self) -> bool:
        """Before a step before which there is something to do. Whether it is measured."""

    def end_step(self, start: Any, end: Any) -> None:
        """A step has ended after which there is something to do. start, end: its marks."""

    def leave_step(self) -> None:
        """A step has ended that was not measured, or not any more."""

    def drop_step(self) -> None:
        """A step has failed: it is not counted."""

    def fail(self, fault: BaseException) -> None:
        """A fault in here: no more numbers from now on."""


class MeteredStep(OpenStep):
    """The context of one step; one object for all steps of a meter.

    left: steps that may end before there is more to do than to keep their marks and calls; 0: there is, in the next.
    number: steps that have ended; unchanged: those in which the weight was not written. inputs, items: as in
    `UtilizationMeter.step`.
    """

    __slots__ = ("_owner", "_pending", "_updated", "_weight", "inputs", "items", "left", "mark", "number", "unchanged")

    def __init__(self, owner: StepOwner, times: StepTimes, weight: torch.Tensor) -> None:
        super().__init__()
        self._weight, self._updated, self.unchanged = weight, weight._version, 0
        self._owner = owner
        self._pending = times.pending
        self.mark = times.mark
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
            if start is not None and kind is None:
                end = self.mark()
                self.begun = None
                self.number += 1
                if (version := self._weight._version) == self._updated:
                    self.unchanged += 1
                self._updated = version
                calls = self.calls
                for call in calls:
                    call.__class__ = call.ended
                if self.left and 0 < len(calls) <= KEPT_CALLS:
                    self._pending.append((start, end, calls, self.items, False))
                    self.left -= 1
                else:
                    self._owner.end_step(start, end)
            elif start is not None:
                self._owner.drop_step()
            else:
                self._owner.leave_step()
            if self.inputs:
                self.inputs = ()
        except Exception as fault:  # noqa: BLE001  as above
            self._owner.fail(fault)
