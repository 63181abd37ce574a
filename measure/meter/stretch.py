"""Steps of a loop, or of a window of it, and which of them have no FLOP because an observed step said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from measure.meter.calls import CallKey, Passes
from measure.meter.observed_costs import Verdict
from measure.meter.step_times import StepBlock, StepBlocks


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
                since = self._since.setdefault(key, _Since())
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
