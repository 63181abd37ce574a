"""Which steps of a loop are observed, and what comes of it.

Observed are the first two steps, those after a change that a look shows (`measure/meter/model_state.py`), after new
sizes of inputs, steps drawn at random, and the last one before a window that is as long as the one before. An observed
step runs under a dispatch mode (`observed_step.py`) and is held against the counts of its calls (`observed_costs.py`).
Random draws and windows take a thousandth of the loop's time, or 3 µs of each step.

Not claimed: anything of the steps between two observations but that both saw the same.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from measure.meter.call_costs import CallCosts
from measure.meter.calls import CallKey
from measure.meter.observed_costs import ObservedCosts, Unsteady, Verdict
from measure.meter.observed_step import ObservedWork, StepObserver
from measure.meter.step_times import MeteredStep

FIRST = 2
"""Steps that are observed at the beginning, and after a change that no look showed."""

BUDGET_RATIO, BUDGET_S = 0.001, 3e-6
"""Share of a step, or seconds of each step, for observations; whichever is more."""

SOONEST = 64
"""Steps before the first random observation in the mean; each later one is twice as far, up to what the budget says."""

MAX_WANTED = 64
"""Observations because calls have no other count, or have new sizes, that no budget limits."""

APART = 8
"""At most one step in this many is observed because its inputs have new sizes."""

MAX_FAILED = 4
"""Observations in a row that saw only a part of their step, after which there are no more."""

OPAQUE = "what compiled and scripted code and copies of DataParallel run cannot be observed"
IN_PART = (
    "a part of each step runs where it cannot be observed: in a thread, or under a dispatch mode of the loop's own"
)


class Observations:
    """Observes steps of a model.

    reason: why no step can be observed; "": they can. last: number of the step that was observed last; 0: none was.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        modules: Sequence[torch.nn.Module],
        open_step: MeteredStep,
        costs: CallCosts,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._modules = modules
        self._open_step = open_step
        self._costs = costs
        self._on_fault = on_fault
        device = next((each.device.type for each in model.parameters()), "cpu")
        self._ran = ObservedCosts(costs, device != "cpu")
        self._observer: StepObserver | None = None
        self._left: StepObserver | None = None
        self._first_seen: dict[CallKey, int] = {}
        self._draws = random.Random(0)
        self._gap = SOONEST
        self._drawn = 0
        self._next = 1  # number of the next step to be observed
        self._first = FIRST
        self._wanted = self._failed = self._unexplained = self._observed = 0
        self._is_new = self._is_new_state = False
        self._versions: set[int] = set()
        self._window = self._before = self._period = 0
        self._cost_s = 0.0
        self._began_s = time.perf_counter()
        self.last = 0
        opaque: Any = torch._dynamo.OptimizedModule, torch.nn.DataParallel, torch.jit.ScriptModule
        is_opaque = any(each._compiled_call_impl or isinstance(each, opaque) for each in model.modules())
        self.reason = OPAQUE if is_opaque else ""

    def at_next_step(self, number: int) -> bool:
        """Whether there is anything to do at the next step, after so many."""
        return self._left is not None or (self._next <= number + 1 and not self.reason)

    def meet(self, key: CallKey, number: int) -> None:
        """A call of a kind that was not seen before, in the step after so many."""
        self._first_seen[key] = number + 1
        self._is_new = True
        self._is_new_state |= key.version not in self._versions
        self._versions.add(key.version)

    def begin(self, number: int) -> None:
        """The next step begins, after so many: observe it, if it is due."""
        self.drop()
        if self._next > number + 1 or self.reason:
            return
        observer = StepObserver(self._modules, lambda: self._open_step.calls)
        if observer.begin():
            self._observer = observer
        else:
            self._fails()

    def end(self) -> tuple[ObservedWork | None, bool]:
        """The step has ended. What was seen of it, if it was observed; and whether its time is that of no other."""
        observer, self._observer = self._observer, None
        if observer is None:
            return None, False
        self._leave(observer)
        work = observer.end()
        if observer.fault is not None:
            self.reason = IN_PART
            self._on_fault(observer.fault)
        if work is None:
            self._fails()
        else:
            self._failed = 0
        return work, self.last >= FIRST or (work is None and self._failed > FIRST)

    def judge(self, work: ObservedWork, number: int) -> Verdict | None:
        """Hold what was seen in the step of this number against what is counted by now."""
        self._cost_s = work.host_s
        self._observed += 1
        self._first = max(0, self._first - 1)
        try:
            verdict = self._ran.judge(work, lambda key: number - self._first_seen.get(key, number) <= 1)
        except Unsteady as fault:
            self._costs.refused = self.reason = str(fault)
            return None
        if verdict is None:
            return None
        if verdict.has_changed:
            self._unexplained += 1
            self._first = FIRST
            if self._unexplained > 1 or number - self.last <= 1:
                self._costs.refused = self.reason = f"{verdict.reason}: sizes and modes do not say what they cost"
        self.last = number
        return verdict

    def plan(self, number: int) -> int:
        """How many steps there are, after so many, before the next that is to be observed; 0: it is the next one."""
        is_due = self._is_new_state or (self._is_new and self._observed * APART <= number)
        wanted = ((is_due and self.last != number) or self._costs.wants_observation) and self._wanted < MAX_WANTED
        self._is_new = self._is_new_state = False
        self._wanted += wanted
        if self._drawn <= number:
            mean = min(self._gap, self._affordable(number))
            self._gap *= 2
            self._drawn = number + self._draws.randint(1, max(1, 2 * mean - 1))
        self._next = number + 1 if self._first or wanted else self._drawn
        last_of_window = self._window + self._period
        if number < last_of_window and self._period >= self._affordable(number):
            self._next = min(self._next, last_of_window)
        if self.at_next_step(number):
            return 0
        return 1 << 30 if self.reason else self._next - number - 1

    def request(self, number: int) -> None:
        """The next step, after so many, is to be observed."""
        self._next = number + 1

    def window(self, number: int) -> None:
        """A window ends after so many steps."""
        steps, self._window = number - self._window, number
        self._period, self._before = steps if steps == self._before else 0, steps

    def drop(self) -> None:
        """The step that is observed is none. A mode is taken off that was to be taken off in a backward pass, or before
        one that was entered later."""
        observer, self._observer = self._observer, None
        if observer is not None:
            self._leave(observer)
            observer.end()
        if self._left is not None:
            self._leave(self._left)

    def notes(self, keys: Iterable[CallKey]) -> tuple[str, ...]:
        """What a summary of calls of these keys has to say."""
        notes = []
        seen = set() if self._costs.refused else set(keys)
        if seen & self._ran.parts:
            notes.append("each layer's part on this rank is counted as an observed step ran it (tensor parallelism)")
        if seen & self._ran.replaced:
            notes.append(
                "counted as an observed step ran it: the loop runs other products than one forward pass and one "
                "backward pass from all outputs to all parameters"
            )
        if self._ran.outside_flop:
            notes.append(
                f"{self._ran.outside_flop:,} FLOP of a step ran outside of the model's calls: no number here has them"
            )
        return tuple(notes)

    def _fails(self) -> None:
        """A step could not be observed."""
        self._failed += 1
        if self._failed == MAX_FAILED:
            self.reason = IN_PART

    def _leave(self, observer: StepObserver) -> None:
        """Take the mode off, now or, where one was entered in it and not left, before a later step."""
        self._left = None if observer.leave() else observer

    def _affordable(self, number: int) -> int:
        """One in how many steps may be observed."""
        step_s = (time.perf_counter() - self._began_s) / max(number, 1)
        return max(1, round(self._cost_s / max(BUDGET_S, BUDGET_RATIO * step_s)))
