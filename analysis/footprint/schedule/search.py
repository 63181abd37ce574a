"""The best order of all, by search over the sets of operations that can have run: exact where it comes to its end.

A state is a set of operations with all that has to come before them. From the states with the lowest peak so far the
search goes on, one operation at a time, so that the first complete order that it meets is one of the best; and at any
moment no order has a lower peak than the state that is next.

A chain of operations, each of which waits for the one before alone, runs without an alternative if it leaves no more
than it found and fits below the peak so far. In any order from here it can be drawn to the front: live bytes are a
submodular function of the set that has run, and of the sets on the way through the chain its end has the fewest, so
that everything that is between has no more to bear than without.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from analysis.footprint.schedule.dependencies import Graph

LONGEST = 8
"""Operations of a chain that is looked at as one, at most."""


@dataclass(frozen=True)
class ScheduleResult:
    """bound_bytes: no order has a lower peak (nor one below the limit that was asked for). order: one with that peak;
    None: there is none below what it was to beat, or the search did not come to its end (complete). looks: its work."""

    bound_bytes: int
    order: tuple[int, ...] | None
    complete: bool
    looks: int


@dataclass(frozen=True)
class _State:
    """What has run, as bits, what can run next, live bytes, and how it came to that."""

    done: int
    ready: tuple[int, ...]
    live: int
    ran: tuple[int, ...]
    before: _State | None


def searched(graph: Graph, limit: int, to_beat: int, most: int) -> ScheduleResult:
    """The best order, or any whose peak is at most `limit`. All in bytes; to_beat: a peak that is known already.

    most: chains that are looked at, at most: the work is counted, not timed, so that the answer is always the same.
    """
    space = _Space(graph)
    first = space.calm(_State(0, space.first, graph.at_first_bytes, (), None), limit)
    heap = [(limit, -first.done.bit_count(), 0)]
    states, lowest = [first], {first.done: limit}
    while heap:
        peak, _, number = heappop(heap)
        state = states[number]
        if peak >= to_beat:
            break
        if state.done == space.whole:
            return ScheduleResult(peak, _order(state), True, space.looks)
        if space.looks >= most:
            return ScheduleResult(peak, None, False, space.looks)
        if peak > lowest[state.done]:
            continue
        for node in state.ready:
            higher = max(peak, state.live + graph.made_bytes[node])
            if higher >= to_beat:
                continue
            after = space.then(state, node, higher)
            if higher < lowest.get(after.done, to_beat):
                lowest[after.done] = higher
                heappush(heap, (higher, -after.done.bit_count(), len(states)))
                states.append(after)
    return ScheduleResult(to_beat, None, True, space.looks)


def _order(state: _State | None) -> tuple[int, ...]:
    parts: list[tuple[int, ...]] = []
    while state is not None:
        parts.append(state.ran)
        state = state.before
    return tuple(node for part in reversed(parts) for node in part)


class _Space:
    """The states of a graph. looks: chains that were looked at."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.whole = (1 << len(graph.operations)) - 1
        self.looks = 0
        self._before = [sum(1 << other for other in others) for others in graph.before]
        self._users = [sum(1 << node for node in block.users) for block in graph.blocks]
        self.first = tuple(node for node, mask in enumerate(self._before) if not mask)

    def then(self, state: _State, node: int, limit: int) -> _State:
        """The state after a node, and after what then runs without an alternative."""
        live = state.live + self._graph.made_bytes[node] - self._gain(state.done, node)
        done = state.done | (1 << node)
        ready = (*(other for other in state.ready if other != node), *self._freed(done, node))
        return self.calm(_State(done, ready, live, (node,), state), limit)

    def calm(self, state: _State, limit: int) -> _State:
        """The state after all chains that fit below the limit and leave no more than they found."""
        done, ready, live, ran = state.done, state.ready, state.live, list(state.ran)
        before = -1
        while len(ran) > before:
            before, queue, kept = len(ran), list(ready), list[int]()
            for node in queue:  # which grows as it is read
                if done >> node & 1:
                    continue
                chain, after, left = self._chain(done, node, live, limit)
                if not chain:
                    kept.append(node)
                    continue
                ran += chain
                done, live = after, left
                for each in chain:
                    queue += self._freed(done, each)
            ready = tuple(dict.fromkeys(node for node in kept if not done >> node & 1))
        return _State(done, ready, live, tuple(ran), state.before)

    def _chain(self, done: int, node: int, live: int, limit: int) -> tuple[list[int], int, int]:
        """(nodes of a chain from this one on that fits and leaves no more than it found, what has run then, live
        bytes); no nodes where there is none."""
        self.looks += 1
        after, now, chain = done, live, list[int]()
        while len(chain) < LONGEST:
            made = self._graph.made_bytes[node]
            if now + made > limit:
                break
            now += made - self._gain(after, node)
            after |= 1 << node
            chain.append(node)
            if now <= live:
                return chain, after, now
            following = self._freed(after, node)
            if not following:
                break
            node = following[0]
        return [], done, live

    def _gain(self, done: int, node: int) -> int:
        """What goes if a node runs now."""
        after = done | (1 << node)
        return sum(self._graph.blocks[n].nbytes for n in self._graph.goes[node] if not self._users[n] & ~after)

    def _freed(self, done: int, node: int) -> list[int]:
        """What can run now that a node has."""
        return [other for other in self._graph.after[node] if not self._before[other] & ~done]
