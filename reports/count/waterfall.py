"""From a counter's own number to the exact count in a few steps: what a waterfall picture shows, as plain values.

A step is a cause seen from the counter: what it added is taken off, what it left out is added. The first step is the
convention, where there is one, then the others from the largest to the smallest; what is left unexplained is the last.
All steps together lead to the exact count, to the last FLOP. Nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cleaning.accounts.vocabulary.causes import CONVENTION
from results.records.accounts import Account, AccountCause

UNEXPLAINED = "unexplained"

MOST_CAUSES = 6
"""Causes of one counter that have a step of their own; more than that are merged from the smallest up."""


@dataclass(frozen=True)
class WaterfallStep:
    """What one cause takes the count from and to, in native units. count: of the causes that are merged in it."""

    cause: str
    begin: Fraction
    end: Fraction
    count: int = 1

    @property
    def change(self) -> Fraction:
        """What the step adds; below 0 what it takes off."""
        return self.end - self.begin


@dataclass(frozen=True)
class Lane:
    """One counter's way. steps: empty where its number is the exact one, or where it has none."""

    account: Account
    steps: tuple[WaterfallStep, ...] = ()

    @property
    def has_total(self) -> bool:
        """Whether it has a number, and an exact one beside it to be led to."""
        return self.account.status == "ok" and self.account.unexplained_flop is not None

    @property
    def places(self) -> list[float]:
        """Where the native number and the end of each step lie, in parts of the exact count."""
        if not self.has_total or not self.account.exact_flop:
            return []
        native = Fraction(self.account.native_value or 0)
        return [float(place / self.account.exact_flop) for place in (native, *(step.end for step in self.steps))]


def lane(account: Account, causes: Iterable[AccountCause]) -> Lane:
    """The way of one account. causes: any; those of this counter and pass are taken."""
    if account.status != "ok" or account.native_value is None or account.unexplained_flop is None:
        return Lane(account)
    at = Fraction(account.native_value)
    steps = []
    for cause, flop, count in _parts(account, causes):
        steps.append(WaterfallStep(cause, at, at - flop, count))
        at -= flop
    return Lane(account, tuple(steps))


def _parts(account: Account, causes: Iterable[AccountCause]) -> list[tuple[str, Fraction, int]]:
    """(cause, what it adds to the exact count, how many causes that is), in the order of the steps."""
    sums: dict[str, Fraction] = {}
    key = (account.model, account.batch_size, account.counter, account.phase)
    for cause in causes:
        if (cause.model, cause.batch_size, cause.counter, cause.phase) == key:
            sums[cause.cause] = sums.get(cause.cause, Fraction(0)) + Fraction(cause.flop)
    ordered = sorted(
        (item for item in sums.items() if item[1]), key=lambda item: (item[0] != CONVENTION, -abs(item[1]))
    )
    kept = [(cause, flop, 1) for cause, flop in ordered]
    if len(kept) > MOST_CAUSES:
        rest = kept[MOST_CAUSES - 1 :]
        kept = kept[: MOST_CAUSES - 1] + [("", sum((flop for _, flop, _ in rest), Fraction(0)), len(rest))]
    left = Fraction(account.unexplained_flop or 0)
    return [*kept, (UNEXPLAINED, left, 1)] if left else kept


def near(lanes: Sequence[Lane], farthest: float) -> list[float]:
    """For each lane how far its last steps go from the exact count, in parts of it: of the steps that begin and end
    within `farthest`, to the end without a gap. 0: no step is so small."""
    reaches = []
    for each in lanes:
        reach = 0.0
        for place in reversed(each.places):
            if abs(place - 1) > farthest:
                break
            reach = max(reach, abs(place - 1))
        reaches.append(reach)
    return reaches
