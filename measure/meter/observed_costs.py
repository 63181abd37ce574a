"""Did an observed step run what was counted of its calls?

The first observation of a kind of call corrects its count: what ran is what such a call costs. Every later one has to
see the same, or the model is not the one that was counted. What ran outside of the model's calls is told.

Not claimed: anything of steps that were not observed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from measure.meter.call_costs import CallCost, CallCosts
from measure.meter.calls import CallKey
from measure.meter.observed_step import Amounts, ObservedCall, ObservedWork

OTHER_KERNELS = ("attention", "recurrent")
"""Kinds whose kernels on a GPU are others than on the CPU, and may calculate gradients that nobody asked for. There an
observation is compared with the first one, and corrects no count."""

FORWARD, AGAIN, BACKWARD, RECOMPUTE = PHASES = ("forward", "again", "backward", "recompute")
"""Phases of a cost. again: of a call that a checkpoint around the model makes again; recompute: what checkpoints inside
of the model compute again, for each backward pass."""


DIFFERS = "an observed step ran other products than were counted of its calls"


class Unsteady(Exception):
    """There is no count; the message says why."""


@dataclass(frozen=True)
class Verdict:
    """What an observed step says. seen: the kinds of calls that it ran; differing: those of them that ran something
    else than in the steps before. reason: what differs. has_changed: whether they were observed before, so that the
    model is another one now."""

    seen: frozenset[CallKey]
    differing: frozenset[CallKey] = frozenset()
    reason: str = ""
    has_changed: bool = False


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


class ObservedCosts:
    """Holds observed steps against the counts of calls, and corrects those.

    other_kernels: whether the device has kernels of its own for OTHER_KERNELS.
    outside_flop: the most that ran outside of the model's calls in a step. replaced: calls that are counted as they
    ran; parts: those that have no other count.
    """

    def __init__(self, costs: CallCosts, other_kernels: bool) -> None:
        self._costs = costs
        self._other_kernels = other_kernels
        self._observed: set[tuple[CallKey, str]] = set()
        self._first: dict[tuple[CallKey, str], int] = {}
        self.outside_flop = 0
        self.replaced: set[CallKey] = set()
        self.parts: set[CallKey] = set()

    def judge(self, work: ObservedWork, is_new: Callable[[CallKey], bool]) -> Verdict | None:
        """What a step says of its calls; None where a call has no count to hold it against. is_new: whether a kind of
        call is so new that no step before can have been counted wrongly. Raises Unsteady."""
        costs, ran = self._costs.cost_by_key, _by_key(work.calls)
        if not ran or any(key not in costs or not (costs[key].must_run or not costs[key].unknown_calls) for key in ran):
            return None
        self.outside_flop = max(self.outside_flop, work.outside_flop)
        seen = frozenset(ran)
        for key, phases in ran.items():
            self._costs.use_units(key, {phase: each.amounts for phase, each in phases.items()})
        kinds = {kind for each in work.calls for kind, _ in (*each.forward, *each.backward)}
        if self._other_kernels and kinds & set(OTHER_KERNELS):
            differing = frozenset(
                key
                for key, phases in ran.items()
                for phase, each in phases.items()
                if each.times and self._first.setdefault((key, phase), each.amounts.total()) != each.amounts.total()
            )
            return Verdict(seen, differing, DIFFERS if differing else "", bool(differing))
        if self._is_as_counted(ran, work, costs):
            self._observed |= {(key, phase) for key in ran for phase, each in ran[key].items() if each.times}
            self._costs.observed |= seen
            return Verdict(seen)
        self._add_elsewhere(ran, work)
        before = {key for key, _ in self._observed}
        without_count = {key for key in ran if self._costs.must_be_observed(key, costs[key])}
        results = {key: self._cost(key, ran[key], costs[key]) for key in ran}
        changed = {key: cost for key, (cost, _) in results.items() if cost is not None}
        reasons = {
            key: reason or DIFFERS
            for key, (cost, reason) in results.items()
            if reason or (cost is not None and not is_new(key) and key not in without_count and key not in before)
        }
        if any(reason for _, reason in results.values()):
            return Verdict(seen, frozenset(reasons), next(iter(reasons.values())), has_changed=True)
        for key in changed:
            (self.parts if costs[key].must_run else self.replaced).add(key)
        self._costs.cost_by_key |= changed
        self._costs.observed |= seen
        self._costs.only_observed = bool(self.replaced)
        return Verdict(seen, frozenset(reasons), next(iter(reasons.values()), ""))

    def _is_as_counted(
        self, ran: Mapping[CallKey, Mapping[str, _Ran]], work: ObservedWork, costs: Mapping[CallKey, CallCost]
    ) -> bool:
        if any(costs[key].must_run for key in ran):
            return False
        expected = {
            (key, phase): _expected(costs[key], phase) * ran[key][phase].times for key in ran for phase in PHASES
        }
        seen = {(key, phase): ran[key][phase].amounts.total() for key in ran for phase in PHASES}
        if expected == seen and all(each.is_even for phases in ran.values() for each in phases.values()):
            return bool(work.outside_flop) or not work.elsewhere
        called = [place for place in expected if place[1] in (FORWARD, AGAIN)]
        same_calls = all(expected[place] == seen[place] for place in called)
        everything = sum(seen.values()) + work.elsewhere.total()
        return same_calls and not work.outside_flop and everything == sum(expected.values())

    def _add_elsewhere(self, ran: Mapping[CallKey, Mapping[str, _Ran]], work: ObservedWork) -> None:
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

    def _cost(self, key: CallKey, phases: Mapping[str, _Ran], before: CallCost) -> tuple[CallCost | None, str]:
        """What a call costs as it ran, None where that is what was counted; and what differs from an observation
        before. Raises Unsteady."""
        products = {} if before.must_run else dict(before.products)
        differs = before.must_run
        for phase, each in phases.items():
            expected, total = _expected(before, phase), each.amounts.total()
            if not each.times and not total:
                continue
            if total == expected * each.times and each.is_even and not before.must_run:
                self._observed.add((key, phase))
                continue
            ran = self._per_pass(each, phase)
            if (key, phase) in self._observed:
                return None, f"equal calls of the model ran {expected:,} and {ran.total():,} FLOP ({phase})"
            self._observed.add((key, phase))
            if ran.total() == expected and not before.must_run:
                continue
            differs = True
            products = {place: flop for place, flop in products.items() if place[0] != phase}
            for (kind, dtype), flop in ran.items():
                place = phase, kind, self._costs.unit_of(kind, dtype)
                products[place] = products.get(place, 0) + flop
        return CallCost(products, reason="" if before.must_run else before.reason) if differs else None, ""

    def _per_pass(self, each: _Ran, phase: str) -> Amounts:
        """What one pass ran. Raises Unsteady."""
        if not each.times:
            raise Unsteady("a backward pass ran through the model that began at none of the tensors that it gave")
        if not each.is_even or any(flop % each.times for flop in each.amounts.values()):
            raise Unsteady(f"equal calls of the model ran different products in one step ({phase})")
        return Counter({what: flop // each.times for what, flop in each.amounts.items()})


def _by_key(calls: Iterable[ObservedCall]) -> dict[CallKey, dict[str, _Ran]]:
    """Key → phase → what its calls ran."""
    ran: dict[CallKey, dict[str, _Ran]] = defaultdict(lambda: {phase: _Ran() for phase in PHASES})
    for each in calls:
        phases = ran[each.call.key]
        phases[AGAIN if each.call.recomputed else FORWARD].add(each.forward, 1)
        phases[BACKWARD].add(each.backward, each.passes)
        phases[RECOMPUTE].add(each.recompute, each.passes)
    return dict(ran)


def _expected(cost: CallCost, phase: str) -> int:
    """FLOP of one pass of a phase."""
    if phase == AGAIN and not any(place[0] == AGAIN for place in cost.products):
        phase = FORWARD
    return sum(flop for place, flop in cost.products.items() if place[0] == phase)
