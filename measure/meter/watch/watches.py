"""Which steps of a loop are watched, and what comes of it: the first two, and later ones within a share of the time.

A step is watched (`watched_step`) and compared with the counts of its calls (`watched_costs`) once those are known. It
takes longer than others, so that it is left out of the numbers where it is none of the loop's first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import torch

from measure.meter.call_costs import CallCosts
from measure.meter.calls import CallKey, OpenStep
from measure.meter.watch.watched_costs import WatchedCosts
from measure.meter.watch.watched_step import StepWatch, WatchedWork

FIRST, APART = 2, 100
"""Steps that are watched at the beginning, and those between any two after them."""

BUDGET_RATIO = 0.001
"""Share of the loop's time for watched steps after the first."""

MAX_WANTED = 64
"""Steps that are watched beside those because a call has no other count."""


class Watches:
    """Watches steps of a model. due: whether the next step is to be watched. on_fault: called, after a step that was
    watched, with what went wrong in that."""

    def __init__(
        self,
        model: torch.nn.Module,
        modules: Sequence[torch.nn.Module],
        open_step: OpenStep,
        costs: CallCosts,
        wanted: bool,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._modules = modules
        self._open_step = open_step
        self._costs = costs
        self._on_fault = on_fault
        device = next((each.device.type for each in model.parameters()), "cpu")
        self._found = WatchedCosts(costs.unit_of, device != "cpu")
        self._step: StepWatch | None = None
        self._left: StepWatch | None = None
        self._waiting: list[WatchedWork] = []
        self._watched = self._wanted = 0
        self._spent_s = 0.0
        self._began_s = time.perf_counter()
        self._since = 0
        self._is_possible = wanted
        self.due = wanted

    @property
    def at_next_step(self) -> bool:
        """Whether there is anything to do at the next step."""
        return self.due or self._left is not None

    def begin(self) -> None:
        """The next step begins: watch it, if it is due."""
        self.drop()
        self.leave()
        if not self.due:
            return
        step = StepWatch(self._modules, lambda: self._open_step.calls)
        if step.begin():
            self._step, self.due = step, False

    def end(self) -> bool:
        """The step has ended. Whether its time is that of no other step, so that it is in no number."""
        step, self._step = self._step, None
        if step is not None:
            self._leave(step)
        work = step.end() if step is not None else None
        if step is not None and step.fault is not None:
            self._is_possible = False
            self._on_fault(step.fault)
        if work is None:
            return step is not None and self._watched >= FIRST
        self._watched += 1
        self._since = 0
        self._waiting.append(work)
        self.due = self._watched < FIRST
        if self._watched <= FIRST:
            return False
        self._spent_s += work.host_s
        return True

    def model_changed(self) -> None:
        """The model is another one from here on: steps are watched as at the beginning."""
        self._watched, self.due = 0, self._is_possible

    def drop(self) -> None:
        """The step that is watched is none."""
        step, self._step = self._step, None
        if step is not None:
            self._leave(step)
            step.end()

    def leave(self) -> None:
        """Take off a mode that was to be taken off in a backward pass, or before one that was entered later."""
        if self._left is not None:
            self._leave()

    def _leave(self, step: StepWatch | None = None) -> None:
        """Take the mode off, now or, where one was entered in it and not left, before a later step."""
        step = step or self._left
        self._left = None if step is None or step.leave() else step

    def judge(self, steps: int) -> None:
        """Hold what was seen against what is counted by now, and see whether another step is due. steps: taken since
        this was last called."""
        for work in self._waiting:
            self._costs.replace(self._found.judge(work, self._costs.cost_by_key))
        self._waiting.clear()
        self._costs.refused = self._found.refused
        if not self._is_possible or self.due or self._found.refused:
            return
        self._since += steps
        if self._costs.wants_watch and self._wanted < MAX_WANTED:
            self._wanted += 1
            self.due = True
            return
        share = self._spent_s / max(time.perf_counter() - self._began_s, 1e-9)
        self.due = self._since >= APART and share < BUDGET_RATIO

    def notes(self, keys: Iterable[CallKey]) -> tuple[str, ...]:
        """What a summary of calls of these keys has to say."""
        notes = []
        seen = set() if self._found.refused else set(keys)
        if seen & self._found.parts:
            notes.append("each layer's part on this rank is counted as a watched step ran it (tensor parallelism)")
        if seen & self._found.replaced:
            notes.append(
                "counted as a watched step ran it: the loop runs other products than one forward pass and one backward "
                "pass from all outputs to all parameters"
            )
        if self._found.outside_flop:
            notes.append(
                f"{self._found.outside_flop:,} FLOP of a step ran outside of the model's calls: no number here has them"
            )
        return tuple(notes)
