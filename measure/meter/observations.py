"""Decides which steps of a loop are observed, and compares the products that they ran with those that were counted.

A product is a convolution or matrix product. `Observations.plan` returns the number of steps until the next
observation. `judge` takes an `ObservedStep` (`observed_step.py`) and returns an `ObservationVerdict`. The first two
steps are observed, and steps after a change that `ModelState` sees or with new sizes of inputs. So are steps drawn at
random and, after two windows of equal length, the last step of the next window. The first observation of a kind of call
corrects its count. Every later observation must see the same products, or the model is no longer the one that was
counted. Not claimed: that the steps between two observations ran these products, too.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from measure.meter.call_costs import CallCost, CallCosts
from measure.meter.calls import CallKey
from measure.meter.observed_step import Amounts, ObservedStep, StepObserver

FIRST = 2
"""Number of steps observed at the beginning, and after a change that `ModelState` did not show."""

BUDGET_RATIO, BUDGET_S = 0.001, 3e-6
"""Time for observations at random and of windows: this share of the loop, or seconds per step, whichever is more."""

SOONEST = 64
"""Mean number of steps before the first random observation. Each later distance is twice the distance before, within
the budget."""

MAX_WANTED = 64
"""Maximum number of observations without regard to the budget, of calls without another count or with new sizes."""

NEW_SIZES_EVERY = 8
"""At most one step in this many is observed because its inputs have new sizes."""

MAX_FAILED = 4
"""After this many observations in a row that saw only a part of their step, no more steps are observed."""

OTHER_KERNELS = ("attention", "recurrent")
"""Kinds of products whose kernels on a GPU differ from those on the CPU, and may calculate gradients that are not
needed. Their observation is compared with the first one, and corrects no count."""

OPAQUE = "the operations of compiled code, scripted code and DataParallel's copies cannot be observed"
IN_PART = "a part of each step cannot be observed: it runs in another thread, or under the loop's own dispatch mode"
DIFFERS = "an observed step ran other products than its calls were counted with"


class Unsteady(Exception):
    """There is no count; the message says why."""


@dataclass(frozen=True)
class ObservationVerdict:
    """The result of comparing an observed step. seen: the kinds of calls that it ran; differing: those that ran other
    products than were counted in the steps before. reason: what differs. has_changed: whether these calls were observed
    before, so that the model has changed."""

    seen: frozenset[CallKey]
    differing: frozenset[CallKey] = frozenset()
    reason: str = ""
    has_changed: bool = False


@dataclass
class _PhaseRun:
    """The products that the calls of one key ran in one phase. times: how often the phase ran. shares: (FLOP, times) of
    each call."""

    amounts: Amounts = field(default_factory=Counter)
    times: int = 0
    shares: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_even(self) -> bool:
        """Whether all calls ran the same FLOP each time."""
        return all(flop * self.times == times * self.amounts.total() for flop, times in self.shares)


CallPhase = tuple[CallKey, str]
"""A kind of call, and a phase of its cost."""


class ObservedCosts:
    """Compares observed steps with the counts of calls, and corrects the counts.

    other_kernels: whether the device is no CPU, so that the kernels of OTHER_KERNELS differ. outside_flop: the most
    FLOP that ran outside of the model's calls in a step. replaced: calls whose count was replaced by an observed one;
    parts: calls that have only an observed count (tensor parallelism).
    """

    def __init__(self, costs: CallCosts, other_kernels: bool) -> None:
        self._costs = costs
        self._other_kernels = other_kernels
        self._observed: set[CallPhase] = set()
        self._first: dict[CallPhase, int] = {}
        self.outside_flop = 0
        self.replaced: set[CallKey] = set()
        self.parts: set[CallKey] = set()

    def judge(self, observed_step: ObservedStep, is_new: Callable[[CallKey], bool]) -> ObservationVerdict | None:
        """Compare an observed step with the counts of its calls; return None if one of them has no count. is_new:
        whether a kind of call is so new that no earlier step can have been counted wrongly. Raises Unsteady."""
        costs, ran = self._costs.cost_by_key, _by_call_phase(observed_step)
        seen = frozenset(key for key, _ in ran)
        if not ran or any(key not in costs or (costs[key].unknown_calls and not costs[key].must_run) for key in seen):
            return None
        self.outside_flop = max(self.outside_flop, observed_step.outside_flop)
        for (key, phase), phase_ran in ran.items():
            self._costs.use_units(key, phase, phase_ran.amounts)
        if self._other_kernels and any(
            kind in OTHER_KERNELS for phase_ran in ran.values() for kind, _ in phase_ran.amounts
        ):
            flop = {call_phase: phase_ran.amounts.total() for call_phase, phase_ran in ran.items() if phase_ran.times}
            differing = frozenset(
                call_phase[0]
                for call_phase in flop
                if self._first.setdefault(call_phase, flop[call_phase]) != flop[call_phase]
            )
            return ObservationVerdict(seen, differing, DIFFERS if differing else "", bool(differing))
        if self._is_as_counted(ran, observed_step):
            self._observed |= {call_phase for call_phase, phase_ran in ran.items() if phase_ran.times}
            self._costs.observed |= seen
            return ObservationVerdict(seen)
        self._add_elsewhere(ran, observed_step)
        before = {key for key, _ in self._observed}
        reasons: dict[CallKey, str] = {}
        corrected: dict[CallKey, CallCost] = {}
        for key in dict.fromkeys(key for key, _ in ran):
            cost, reason = self._corrected(key, ran)
            if cost is not None:
                corrected[key] = cost
                was_right = is_new(key) or key in before or self._costs.must_be_observed(key, costs[key])
                reason = "" if was_right else DIFFERS
            if reason:
                reasons[key] = reason
        has_changed = any(reason != DIFFERS for reason in reasons.values())
        if not has_changed:
            for key in corrected:
                (self.parts if costs[key].must_run else self.replaced).add(key)
            costs |= corrected
            self._costs.observed |= seen
            self._costs.only_observed = bool(self.replaced)
        return ObservationVerdict(seen, frozenset(reasons), next(iter(reasons.values()), ""), has_changed)

    def _is_as_counted(self, ran: Mapping[CallPhase, _PhaseRun], observed_step: ObservedStep) -> bool:
        costs = self._costs.cost_by_key
        if any(costs[key].must_run for key, _ in ran):
            return False
        expected = {(key, phase): costs[key].flop(phase) * phase_ran.times for (key, phase), phase_ran in ran.items()}
        same = {call_phase: phase_ran.amounts.total() == expected[call_phase] for call_phase, phase_ran in ran.items()}
        if all(same.values()) and all(phase_ran.is_even for phase_ran in ran.values()):
            return bool(observed_step.outside_flop) or not observed_step.elsewhere
        everything = sum(phase_ran.amounts.total() for phase_ran in ran.values()) + observed_step.elsewhere.total()
        same_calls = all(is_same for (_, phase), is_same in same.items() if phase in ("forward", "again"))
        return same_calls and not observed_step.outside_flop and everything == sum(expected.values())

    def _add_elsewhere(self, ran: Mapping[CallPhase, _PhaseRun], observed_step: ObservedStep) -> None:
        """Assign the products of nodes that no call made to the only call with a backward pass. Raises Unsteady if
        there is not exactly one, or if products ran outside of the calls."""
        if not observed_step.elsewhere:
            return
        owners = [phase_ran for (_, phase), phase_ran in ran.items() if phase == "backward" and phase_ran.times]
        if observed_step.outside_flop or len(owners) != 1:
            raise Unsteady(
                "a step's backward passes ran products that belong to no call of the model (such as gradients of "
                "gradients), and its calls ran other products than were counted"
            )
        owners[0].amounts.update(observed_step.elsewhere)
        owners[0].shares.clear()

    def _corrected(self, key: CallKey, ran: Mapping[CallPhase, _PhaseRun]) -> tuple[CallCost | None, str]:
        """Return the cost of a call as it ran, or None if its count is right; and what differs from an earlier
        observation. Raises Unsteady."""
        before = self._costs.cost_by_key[key]
        products = {} if before.must_run else dict(before.products)
        differs = before.must_run
        for call_phase, phase_ran in ran.items():
            if call_phase[0] is not key:
                continue
            phase, expected = call_phase[1], before.flop(call_phase[1])
            if before.must_run or phase_ran.amounts.total() != expected * phase_ran.times or not phase_ran.is_even:
                if not phase_ran.times:
                    raise Unsteady("a backward pass through the model began at none of its output tensors")
                if not phase_ran.is_even or any(flop % phase_ran.times for flop in phase_ran.amounts.values()):
                    raise Unsteady(f"equal calls of the model ran different products in one step ({phase})")
                flop = phase_ran.amounts.total() // phase_ran.times
                if call_phase in self._observed:
                    return None, f"equal calls of the model ran {expected:,} and {flop:,} FLOP ({phase})"
                if before.must_run or flop != expected:
                    differs = True
                    one_pass = {what: flop // phase_ran.times for what, flop in phase_ran.amounts.items()}
                    products[phase] = self._costs.by_unit(one_pass)
            self._observed.add(call_phase)
        return CallCost(products, reason="" if before.must_run else before.reason) if differs else None, ""


def _by_call_phase(observed_step: ObservedStep) -> dict[CallPhase, _PhaseRun]:
    """Return key and phase → what its calls ran."""
    ran: defaultdict[CallPhase, _PhaseRun] = defaultdict(_PhaseRun)
    for observed in observed_step.calls:
        for phase, amounts in observed.ran.items():
            times = observed.call.backward if phase in ("backward", "recompute") else 1
            if times or amounts:
                phase_ran = ran[observed.call.key, phase]
                phase_ran.amounts.update(amounts)
                phase_ran.times += times
                phase_ran.shares.append((amounts.total(), times))
    return dict(ran)


class Observations:
    """Observes steps of a model.

    reason: why no step can be observed; "": they can. last: number of the step that was observed last; 0: none was.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        modules: Sequence[torch.nn.Module],
        open_step: Any,
        costs: CallCosts,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._modules = modules
        self._open_step = open_step  # a `MeteredStep`
        self._costs = costs
        self._on_fault = on_fault
        device = next((parameter.device.type for parameter in model.parameters()), "cpu")
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
        self._window = self._before = self._period = 0
        self._cost_s = 0.0
        self._began_s = time.perf_counter()
        self.last = 0
        opaque: Any = torch._dynamo.OptimizedModule, torch.nn.DataParallel, torch.jit.ScriptModule
        is_opaque = any(module._compiled_call_impl or isinstance(module, opaque) for module in model.modules())
        self.reason = OPAQUE if is_opaque else ""

    def meet(self, key: CallKey, is_new_state: bool, number: int) -> None:
        """Note a call of a new kind in step `number` + 1. is_new_state: whether the model's state is new, too."""
        self._first_seen[key] = number + 1
        self._is_new = True
        self._is_new_state |= is_new_state

    def begin(self, number: int) -> None:
        """Begin step `number` + 1, and observe it if it is due."""
        self.drop()
        if self._next > number + 1 or self.reason:
            return
        observer = StepObserver(self._modules, lambda: self._open_step.calls)
        if observer.begin():
            self._observer = observer
        else:
            self._fails()

    def end(self) -> tuple[ObservedStep | None, bool]:
        """End the step. Return its observation, if there is one; and whether its time must be left out, since observing
        made it longer."""
        observer, self._observer = self._observer, None
        if observer is None:
            return None, False
        self._leave(observer)
        observed_step = observer.end()
        if observer.fault is not None:
            self.reason = IN_PART
            self._on_fault(observer.fault)
        if observed_step is None:
            self._fails()
        else:
            self._failed = 0
        return observed_step, self.last >= FIRST or (observed_step is None and self._failed > FIRST)

    def judge(self, observed_step: ObservedStep, number: int) -> ObservationVerdict | None:
        """Compare the observed step of this number with the present counts; None if nothing can be concluded."""
        self._cost_s = observed_step.host_s
        self._observed += 1
        self._first = max(0, self._first - 1)
        try:
            verdict = self._ran.judge(observed_step, lambda key: number - self._first_seen.get(key, number) <= 1)
        except Unsteady as fault:
            self._costs.refused = self.reason = str(fault)
            return None
        if verdict is None:
            return None
        if verdict.has_changed:
            self._unexplained += 1
            self._first = FIRST
            if self._unexplained > 1 or number - self.last <= 1:
                self._costs.refused = self.reason = f"{verdict.reason}: sizes and modes do not determine their cost"
        self.last = number
        return verdict

    def plan(self, number: int) -> int:
        """Return how many steps after step `number` come before the next observed one; 0: the next step is observed."""
        is_due = self._is_new_state or (self._is_new and self._observed * NEW_SIZES_EVERY <= number)
        costs = self._costs.cost_by_key.items()
        is_needed = any(self._costs.must_be_observed(key, cost) for key, cost in costs)
        wanted = ((is_due and self.last != number) or is_needed) and self._wanted < MAX_WANTED
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
        if self._left is not None:
            return 0
        return 1 << 30 if self.reason else max(0, self._next - number - 1)

    def request(self, number: int) -> None:
        """Request that the step after the first `number` be observed."""
        self._next = number + 1

    def window(self, number: int) -> None:
        """End a window after `number` steps."""
        steps, self._window = number - self._window, number
        self._period, self._before = steps if steps == self._before else 0, steps

    def drop(self) -> None:
        """Stop observing the current step and leave its dispatch mode; leave an earlier one, too, that could not be
        left at the end of its step."""
        observer, self._observer = self._observer, None
        if observer is not None:
            self._leave(observer)
            observer.end()
        if self._left is not None:
            self._leave(self._left)

    def notes(self, keys: Iterable[CallKey]) -> tuple[str, ...]:
        """Return the notes for a summary of calls of these keys."""
        notes = []
        seen = set() if self._costs.refused else set(keys)
        if seen & self._ran.parts:
            notes.append("tensor parallelism: each layer's part on this rank is counted as an observed step ran it")
        if seen & self._ran.replaced:
            notes.append(
                "counted as an observed step ran it: the loop runs other products than one forward pass and one "
                "backward pass from all outputs to all parameters"
            )
        if self._ran.outside_flop:
            notes.append(
                f"{self._ran.outside_flop:,} FLOP of a step ran outside of the model's calls and are in no number here"
            )
        return tuple(notes)

    def _fails(self) -> None:
        """Note that a step could not be observed."""
        self._failed += 1
        if self._failed == MAX_FAILED:
            self.reason = IN_PART

    def _leave(self, observer: StepObserver) -> None:
        """Leave the observer's dispatch mode, now or, if a mode entered later is still on, before a later step."""
        self._left = None if observer.leave() else observer

    def _affordable(self, number: int) -> int:
        """Return n, where the budget allows one observed step in n."""
        step_s = (time.perf_counter() - self._began_s) / max(number, 1)
        return max(1, round(self._cost_s / max(BUDGET_S, BUDGET_RATIO * step_s)))
