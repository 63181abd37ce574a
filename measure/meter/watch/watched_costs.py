"""Whether the calls of a step that was watched ran what was counted of them, and what each of them ran if not.

A call that ran something else is counted as it ran, from then on. Where equal calls (same sizes and modes) ran one
thing in one step and another in the next, there is no count: sizes and modes do not say what they cost. What ran
outside of the model's calls is said.

Not claimed: anything of steps that were not watched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from measure.meter.call_costs import CallCost
from measure.meter.calls import CallKey
from measure.meter.watch.watched_step import Amounts, WatchedCall, WatchedWork

UnitOf = Callable[[str, torch.dtype], str]
"""(kind of product, dtype) → the unit that runs it."""

OTHER_KERNELS = ("attention", "recurrent")
"""Kinds whose kernels on a GPU are others than on the CPU, and may calculate gradients that nobody asked for."""

FORWARD, AGAIN, BACKWARD, RECOMPUTE = PHASES = ("forward", "again", "backward", "recompute")
"""Phases of a cost. again: of a call that a checkpoint around the model makes again; recompute: what checkpoints inside
of the model compute again, for each backward pass."""


class Unsteady(Exception):
    """There is no count; the message says why."""


@dataclass
class _Ran:
    """What the calls of one key ran in one phase. times: how often the phase ran. shares: of each call by itself."""

    amounts: Amounts = field(default_factory=Counter)
    times: int = 0
    shares: set[tuple[int, int]] = field(default_factory=set)

    def add(self, amounts: Amounts, times: int) -> None:
        self.amounts.update(amounts)
        self.times += times
        if times or amounts:
            self.shares.add((amounts.total(), times))

    @property
    def is_even(self) -> bool:
        """Whether each call ran as much as the others, for each time."""
        return all(flop * self.times == times * self.amounts.total() for flop, times in self.shares)


class WatchedCosts:
    """What is known of calls from watched steps.

    unit_of: as above. other_kernels: whether the device has kernels of its own for OTHER_KERNELS.
    refused: why there can be no count; "" if there can. outside_flop: the most that ran outside of the model's calls in
    a step. replaced: calls that are counted as they ran; parts: those that have no other count.
    """

    def __init__(self, unit_of: UnitOf, other_kernels: bool) -> None:
        self._unit_of = unit_of
        self._other_kernels = other_kernels
        self._known: dict[tuple[CallKey, str], int] = {}
        self.refused = ""
        self.outside_flop = 0
        self.replaced: set[CallKey] = set()
        self.parts: set[CallKey] = set()

    def judge(self, work: WatchedWork, costs: Mapping[CallKey, CallCost]) -> dict[CallKey, CallCost]:
        """Hold a step against the costs of its calls. Returns the costs of calls that did not run what was counted."""
        ran = _by_key(work.calls)
        if any(key not in costs or not _is_comparable(costs[key]) for key in ran):
            return {}
        self.outside_flop = max(self.outside_flop, work.outside_flop)
        try:
            if self._is_as_counted(ran, work, costs):
                self._hold(ran, costs)
                return {}
            self._add_elsewhere(ran, work)
            found = {key: self._cost(key, ran[key], costs[key]) for key in ran}
        except Unsteady as reason:
            self.refused = self.refused or str(reason)
            return {}
        changed = {key: cost for key, cost in found.items() if cost is not None}
        for key in changed:
            (self.parts if costs[key].must_run else self.replaced).add(key)
        return changed

    def _is_as_counted(
        self, ran: Mapping[CallKey, Mapping[str, _Ran]], work: WatchedWork, costs: Mapping[CallKey, CallCost]
    ) -> bool:
        if any(costs[key].must_run for key in ran):
            return False
        kinds = {kind for each in work.calls for kind, _ in (*each.forward, *each.backward)}
        if self._other_kernels and kinds & set(OTHER_KERNELS):
            return True
        expected = {
            (key, phase): _expected(costs[key], phase) * ran[key][phase].times for key in ran for phase in PHASES
        }
        found = {(key, phase): ran[key][phase].amounts.total() for key in ran for phase in PHASES}
        if expected == found and all(each.is_even for phases in ran.values() for each in phases.values()):
            return bool(work.outside_flop) or not work.elsewhere
        called = [place for place in expected if place[1] in (FORWARD, AGAIN)]
        same_calls = all(expected[place] == found[place] for place in called)
        everything = sum(found.values()) + work.elsewhere.total()
        return same_calls and not work.outside_flop and everything == sum(expected.values())

    def _hold(self, ran: Mapping[CallKey, Mapping[str, _Ran]], costs: Mapping[CallKey, CallCost]) -> None:
        for key, phases in ran.items():
            for phase, each in phases.items():
                if each.times:
                    self._known[key, phase] = _expected(costs[key], phase)

    def _add_elsewhere(self, ran: Mapping[CallKey, Mapping[str, _Ran]], work: WatchedWork) -> None:
        """What nodes of no call ran belongs to the only call that has a backward pass, if nothing else ran."""
        if not work.elsewhere:
            return
        owners = [key for key in ran if ran[key][BACKWARD].times]
        if work.outside_flop or len(owners) != 1:
            raise Unsteady(
                "a step ran products in its backward passes that belong to no call of the model, as gradients of "
                "gradients do, and calls that did not run what was counted of them"
            )
        ran[owners[0]][BACKWARD].amounts.update(work.elsewhere)
        ran[owners[0]][BACKWARD].shares.clear()

    def _cost(self, key: CallKey, phases: Mapping[str, _Ran], before: CallCost) -> CallCost | None:
        """What a call costs as it ran; None where it is what was counted. Raises Unsteady."""
        products = {} if before.must_run else dict(before.products)
        differs = before.must_run
        for phase, each in phases.items():
            expected, total = _expected(before, phase), each.amounts.total()
            if not each.times and not total:
                continue
            if total == expected * each.times and each.is_even and not before.must_run:
                if each.times:
                    self._known[key, phase] = expected
                continue
            one = self._per_pass(each, phase)
            known = self._known.setdefault((key, phase), one.total())
            if known != one.total():
                raise Unsteady(
                    f"equal calls of the model ran {known:,} FLOP in one step and {one.total():,} in another "
                    f"({phase}): their sizes and modes do not say what they cost"
                )
            if one.total() == expected and not before.must_run:
                continue
            differs = True
            products = {place: flop for place, flop in products.items() if place[0] != phase}
            for (kind, dtype), flop in one.items():
                place = phase, kind, self._unit_of(kind, dtype)
                products[place] = products.get(place, 0) + flop
        return CallCost(products, reason="" if before.must_run else before.reason) if differs else None

    def _per_pass(self, each: _Ran, phase: str) -> Amounts:
        """What one pass ran. Raises Unsteady."""
        if not each.times:
            raise Unsteady("a backward pass ran through the model that began at none of the tensors that it gave")
        if not each.is_even or any(flop % each.times for flop in each.amounts.values()):
            raise Unsteady(f"equal calls of the model ran different products in one step ({phase})")
        return Counter({what: flop // each.times for what, flop in each.amounts.items()})


def _by_key(calls: Iterable[WatchedCall]) -> dict[CallKey, dict[str, _Ran]]:
    """Key → phase → what its calls ran."""
    found: dict[CallKey, dict[str, _Ran]] = defaultdict(lambda: {phase: _Ran() for phase in PHASES})
    for each in calls:
        phases = found[each.call.seen.key]
        phases[AGAIN if each.call.recomputed else FORWARD].add(each.forward, 1)
        phases[BACKWARD].add(each.backward, each.passes)
        phases[RECOMPUTE].add(each.recompute, each.passes)
    return dict(found)


def _expected(cost: CallCost, phase: str) -> int:
    """FLOP of one pass of a phase."""
    if phase == AGAIN and not any(place[0] == AGAIN for place in cost.products):
        phase = FORWARD
    return sum(flop for place, flop in cost.products.items() if place[0] == phase)


def _is_comparable(cost: CallCost) -> bool:
    return cost.must_run or not cost.unknown_calls
