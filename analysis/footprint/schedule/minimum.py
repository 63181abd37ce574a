"""The minimal footprint of a step: the least peak of live bytes over all orders that its operations can run in.

`minimal` looks for an order of independent operations with a lower peak than the eager one, and says beside it what no
order can be below. Where both are equal the order is one of the best, and that is proven; where the search gave up they
are the two ends of what is known. The search counts its work and has no clock, so that the same step has the same
answer everywhere, and the answer is never above the eager footprint.

What may change its place and how long a block lives is `analysis/footprint/schedule/dependencies.py`'s. The largest
gain is usually the optimizer's step, which then takes each gradient as soon as it is made and lets it go. Nothing is
recomputed (`analysis/footprint/step/checkpointing.py`), moved to another memory or split. What kernels take for
themselves, and what an allocator rounds up, is not in it, as it is not in the footprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.footprint.schedule.dependencies import BEFORE, Graph, graph, live_bytes, with_views
from analysis.footprint.schedule.list_scheduling import PREFERENCES, listed
from analysis.footprint.schedule.lower_bound import forced_bytes
from analysis.footprint.schedule.search import searched
from analysis.footprint.step import CATEGORIES, StepPlace, footprint, place
from results.records import Operation, Storage

EFFORT = 100_000
"""Chains of operations that a search looks at, at most: about a second."""

FIRST_SHARE, SHARE = 4, 8
"""The first search may take this part of the effort; each later one, with a higher limit, this."""

STEPS = 4
"""Limits that orders are listed for, from the bound on."""

MOST_SEARCHED = 20_000
"""Operations of a step that is searched, at most: of what has run there is a bit for each. Larger ones are listed."""

CLOSE = 2000
"""The search ends where best and bound differ by less than this part."""


@dataclass(frozen=True)
class Minimal:
    """lower_bound_bytes ≤ the least peak of any order ≤ minimal_bytes ≤ eager_bytes; proven: the first two are equal.

    order: indices of all operations, in an order whose peak is minimal_bytes. peak_at, by_category: where that is and
    what is alive there. how: what found the order, in words. looks: the work of the search.
    """

    eager_bytes: int
    minimal_bytes: int
    lower_bound_bytes: int
    order: tuple[int, ...]
    proven: bool
    peak_at: StepPlace
    by_category: Mapping[str, int]
    how: str
    looks: int


def minimal(operations: Sequence[Operation], storages: Iterable[Storage], effort: int = EFFORT) -> Minimal:
    """The minimal footprint of a step, and what bounds it from below. effort: see `EFFORT`; 0: no search.

    Raises what `analysis.footprint.step.live_bytes.footprint` raises.
    """
    known = tuple(storages)
    eager = footprint(operations, known)
    found = graph(operations, known)
    best = _Best(found, max(forced_bytes(found), default=found.at_first_bytes))
    _improve(best, effort)
    live = live_bytes(found, best.order)
    turn = live.index(best.peak) if live else BEFORE
    return Minimal(
        eager_bytes=eager.at_least_bytes,
        minimal_bytes=best.peak,
        lower_bound_bytes=best.bound,
        order=with_views(operations, found, best.order),
        proven=best.bound == best.peak,
        peak_at=place(operations, found.operations[best.order[turn]] if live else BEFORE),
        by_category=_by_category(found, {each.id: each.role for each in known}, best.order, turn),
        how=best.how,
        looks=best.looks,
    )


class _Best:
    """The best order so far, and what no order is below."""

    def __init__(self, graph: Graph, bound: int) -> None:
        self.graph, self.bound = graph, bound
        self.order: Sequence[int] = range(len(graph.operations))
        self.peak = max(live_bytes(graph, self.order), default=graph.at_first_bytes)
        self.how = "eager order"
        self.looks = 0

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be gained, or next to nothing."""
        return (self.peak - self.bound) * CLOSE < self.peak

    def take(self, order: Sequence[int], how: str) -> None:
        """An order, if it is better."""
        peak = max(live_bytes(self.graph, order))
        if peak < self.peak:
            self.peak, self.order, self.how = peak, tuple(order), how

    def search(self, limit: int, most: int) -> bool:
        """Look for an order within a limit; whether the search came to its end."""
        found = searched(self.graph, limit, self.peak, most)
        self.looks += found.looks
        if found.bound_bytes > limit or limit == self.bound:
            self.bound = max(self.bound, found.bound_bytes)
        if found.order is not None:
            self.take(found.order, "search")
        return found.complete


def _improve(best: _Best, effort: int) -> None:
    """Search at the bound; if that is too much work, list orders, then search between the bound and the best."""
    if len(best.graph.operations) > MOST_SEARCHED:
        effort = 0
    if best.peak == best.bound or (effort and best.search(best.bound, effort // FIRST_SHARE)):
        return
    for name, prefers in PREFERENCES.items():
        start, span = best.bound, best.peak - best.bound
        for step in range(STEPS):
            best.take(listed(best.graph, start + span * step // STEPS, prefers).order, f"list by {name}")
    low = best.bound
    while best.looks < effort and not best.is_settled:
        limit = (low + best.peak) // 2
        if limit <= low:
            return
        if not best.search(limit, min(effort // SHARE, effort - best.looks)):
            low = limit


def _by_category(graph: Graph, roles: Mapping[int, str], order: Sequence[int], turn: int) -> dict[str, int]:
    """What is alive at a turn of an order, by role."""
    bytes_of = dict.fromkeys(CATEGORIES, 0)
    at = {node: place for place, node in enumerate(order)}
    for block in graph.blocks:
        begins = BEFORE if block.maker == BEFORE else at[block.maker]
        ends = len(order) if block.stays else max((at[node] for node in block.users), default=BEFORE - 1)
        if begins <= turn <= ends:
            bytes_of[roles[block.storages[0]]] += block.nbytes
    return bytes_of
