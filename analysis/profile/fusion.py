"""Ideal fusion of a step: which operations could run as one kernel, and what bytes that kernel would move.

The rule. Every product (`analysis.operators.registry.PRODUCTS`) begins a group: a kernel. Any other operation joins, as
its epilogue, the group that made the largest of the tensors it reads, the latest made of equal ones, if that ran in the
same phase. Without such a group it begins one: an optimizer's update, the loss, an input's normalisation. Groups
without a product that meet in one operation become one. An operation stays out of a group that would then have to run
both before and after another: squeeze-and-excitation scales an image by what its own average gave. Views belong to
nobody.

A group reads each storage that was made outside of it once, and writes once each that another group reads later or
that outlives the step; what stays inside moves nothing. Of a storage count the tensors that are used, and not more
than it holds.

What is not claimed: that a compiler does this, or that a kernel could (a batch normalisation in training needs its
whole input before its first output). Nor is it a lower bound: caches keep tensors from kernel to kernel, attention may
join two products, recomputing may replace reading. A storage is followed whole: a group that writes a slice of one and
reads another slice is taken to read what it wrote.
"""

from collections import defaultdict
from collections.abc import Sequence

from analysis.operators.registry import PRODUCTS, kind_of, rule_of
from analysis.operators.traffic import Form, nothing, reads, writes
from results.records.counts import Operation, Storage

Sizes = dict[Form, int]


def fused(operations: Sequence[Operation], storages: Sequence[Storage]) -> list[tuple[int | None, int]]:
    """(group, bytes) of each operation: the index of the operation that leads its group, or None for a view; and what
    the group moves, on the one that leads, 0 on the others.

    Operations are those of one trace, in order, with sizes that are numbers. Takes time in proportion to the tensors
    they name. Raises ValueError for an operation that does not say its storages.
    """
    room = {storage.id: storage.nbytes for storage in storages}
    outliving = {storage.id for storage in storages if storage.died_index is None}
    groups = group(operations, room)
    moved = _group_bytes(operations, groups, room, outliving)
    return [(g, moved[g] if g == i else 0) if g is not None else (None, 0) for i, g in enumerate(groups)]


def group(operations: Sequence[Operation], room: dict[int, int | None]) -> list[int | None]:
    """The position of the operation that leads the group of each; None for a view. room: storage → its bytes."""
    joining = _Groups(room)
    for position, operation in enumerate(operations):
        rule = rule_of(operation.name)
        if rule is not None and rule.traffic is nothing:
            continue
        if len(operation.reads) != len(operation.input_names):
            raise ValueError(
                f"{operation.name} at index {operation.index}: expected a storage for each of "
                f"{len(operation.input_names)} tensors, got {len(operation.reads)}"
            )
        joining.add(position, operation)
    return [joining.leader(position) for position in range(len(operations))]


class _Groups:
    """Groups as they grow. They run in the order of their leaders: whatever one reads, an earlier one made."""

    def __init__(self, room: dict[int, int | None]) -> None:
        self._room = room
        self._into: dict[int, int] = {}  # position → a position of the same group; a leader's is its own
        self._phase: dict[int, str] = {}  # leader → its phase
        self._products: set[int] = set()
        self._after: dict[int, int] = {}  # leader → the latest other group that it needs
        self._maker: dict[int, int] = {}  # storage → position that last wrote it
        self._readers: dict[int, set[int]] = defaultdict(set)  # storage → groups that read what is in it now

    def leader(self, position: int) -> int | None:
        """The leader of the group that an operation is in."""
        if position not in self._into:
            return None
        while (above := self._into[position]) != position:
            self._into[position] = position = self._into[above]
        return position

    def add(self, position: int, operation: Operation) -> None:
        """Put one operation into a group, or begin one."""
        pieces = reads(operation)
        sources = [
            (_held(size, self._room.get(storage)), self._maker[storage])
            for storage, _, size in pieces
            if storage in self._maker
        ]
        needed = {self._of(maker) for _, maker in sources}
        for storage in operation.writes:  # who must have run before it is written again
            needed |= {self._of(reader) for reader in self._readers.get(storage, ())}
            needed |= {self._of(self._maker[storage])} if storage in self._maker else set()
        product = kind_of(operation.name) in PRODUCTS
        group = None if product else self._host(operation.phase, sources, needed)
        if group is None:
            group = position
            self._phase[position], self._after[position] = operation.phase, -1
            self._products |= {position} if product else set()
        self._into[position] = group
        self._after[group] = max(-1, self._after[group], *({self._of(other) for other in needed} - {group}))
        for storage, _, _ in pieces:
            self._readers[storage].add(group)
        for storage in operation.writes:
            self._maker[storage] = position
            self._readers.pop(storage, None)

    def _of(self, position: int) -> int:
        leader = self.leader(position)
        assert leader is not None
        return leader

    def _host(self, phase: str, sources: list[tuple[int, int]], needed: set[int]) -> int | None:
        """The group to join; groups that can run with it become part of it. None: there is none."""
        here = [(size, maker) for size, maker in sources if self._phase[self._of(maker)] == phase]
        if not here:
            return None
        host = self._of(max(here)[1])
        late = [other for other in needed if other > host]
        if not all(self._may_join(other, host) for other in late):
            return None
        for other in late:
            self._join(other, host)
        for other in sorted((other for other in needed if other < host), reverse=True):
            if not self._may_join(host, other):
                break  # the group has to run after this one
            self._join(host, other)
            host = other
        return host

    def _may_join(self, late: int, early: int) -> bool:
        """Whether a later group without a product could have begun as early as this one."""
        free = late not in self._products and self._after[late] < early
        return free and self._phase[late] == self._phase[early]

    def _join(self, late: int, early: int) -> None:
        self._into[late] = early
        self._after[early] = max(self._after[early], self._after[late])


def _held(size: int, room: int | None) -> int:
    """Bytes of a tensor that are there: an expanded one has more elements than its storage."""
    return size if room is None else min(size, room)


def _group_bytes(
    operations: Sequence[Operation], groups: Sequence[int | None], room: dict[int, int | None], outliving: set[int]
) -> dict[int, int]:
    """Bytes that each group moves."""
    arriving: dict[tuple[int, int], Sizes] = defaultdict(dict)
    leaving: dict[tuple[int, int], Sizes] = defaultdict(dict)
    wanted: set[tuple[int | None, int]] = set()  # (group, storage) that another reads, or that the step leaves behind
    holder: dict[int, int] = {}  # storage → group that last wrote it
    for operation, group in zip(operations, groups, strict=True):
        if group is None:
            continue
        for storage, form, size in reads(operation):
            if (maker := holder.get(storage)) != group:
                arriving[group, storage][form] = max(size, arriving[group, storage].get(form, 0))  # parts overlap
                wanted.add((maker, storage))
        for storage, form, size in writes(operation):
            if (maker := holder.get(storage)) != group and size < (room.get(storage) or size):
                wanted.add((maker, storage))  # the rest of it stays
            leaving[group, storage][form] = size
            holder[storage] = group
    wanted |= {(maker, storage) for storage, maker in holder.items() if storage in outliving}
    moved: dict[int, int] = {g: 0 for g in groups if g is not None}
    for (group, storage), sizes in arriving.items():
        moved[group] += _held(sum(sizes.values()), room.get(storage))
    for key, sizes in leaving.items():
        if key in wanted:
            moved[key[0]] += _held(sum(sizes.values()), room.get(key[1]))
    return moved
