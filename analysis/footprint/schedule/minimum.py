"""The minimal footprint of a step: the least peak of live bytes over all orders that its operations can run in.

`minimal` lists a few orders of independent operations, each below a limit where it can, takes the one with the lowest
peak, and says alongside what no order can be below. Where both are equal the order is one of the best, and that is
proven; elsewhere they are the two ends of what is known. The same step has the same answer everywhere, and the answer
is never above the eager footprint.

What may change its place and how long a block lives is `analysis/footprint/schedule/dependencies.py`'s. The largest
gain is usually the optimizer's step, which then takes each gradient as soon as it is made and lets it go. Nothing is
recomputed (`analysis/footprint/step/checkpointing.py`), moved to another memory or split. What kernels take for
themselves, and what an allocator rounds up, is not in it, as it is not in the footprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from analysis.footprint.schedule.dependencies import graph, live_bytes, with_views
from analysis.footprint.schedule.list_scheduling import PREFERENCES, listed
from analysis.footprint.schedule.lower_bound import forced_bytes
from analysis.footprint.step.live_bytes import footprint
from results.records.operations import Operation, Storage

STEPS = 4
"""Limits that orders are listed for, from the bound on."""


@dataclass(frozen=True)
class Minimal:
    """lower_bound_bytes ≤ the least peak of any order ≤ minimal_bytes ≤ eager_bytes; proven: the first two are equal.

    order: indices of all operations, in an order whose peak is minimal_bytes.
    """

    eager_bytes: int
    minimal_bytes: int
    lower_bound_bytes: int
    order: tuple[int, ...]

    @property
    def proven(self) -> bool:
        """Whether no order needs less."""
        return self.minimal_bytes == self.lower_bound_bytes


def minimal(operations: Sequence[Operation], storages: Iterable[Storage]) -> Minimal:
    """The minimal footprint of a step, and what bounds it from below.

    Raises what `analysis.footprint.step.live_bytes.footprint` raises.
    """
    known = tuple(storages)
    eager = footprint(operations, known)
    found = graph(operations, known)
    bound = max(forced_bytes(found), default=found.at_first_bytes)
    order: Sequence[int] = range(len(found.operations))
    peak = max(live_bytes(found, order), default=found.at_first_bytes)
    span = peak - bound
    for prefers, step in product(PREFERENCES, range(STEPS)):
        if peak == bound:
            break
        run = listed(found, bound + span * step // STEPS, prefers)
        if run.peak < peak:
            peak, order = run.peak, run.order
    return Minimal(eager.at_least_bytes, peak, bound, with_views(operations, found, order))
