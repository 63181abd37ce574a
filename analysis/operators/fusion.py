"""Groups a step's operations into kernels that ideal fusion could run, and counts the bytes each kernel would move.

`fused` takes a trace with numeric sizes and returns (group, bytes) of each operation. A product (convolution or matrix
product) starts a group. Any other operation joins the group of the same phase that made its largest input, or starts a
group. Groups without a product merge where one operation needs both. No merge may create a cycle between groups. Views
belong to no group. A group reads each outside storage once, and writes once what is read later or outlives the step.
`fuse_pointwise` takes a table, also with symbolic sizes, and returns it with chains of pointwise operations merged.
FLOP are unchanged. Not claimed: that a compiler fuses this way. The bytes are no lower bound either: caches keep
tensors, and attention may join two products.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.operators.cost import Cost, Size, needed
from analysis.operators.registry import PRODUCTS, TABLE, Rule, Rules, add_rule, kind_of, rule_of, total
from analysis.operators.step_table import Entry, StepTable, rebuilt
from analysis.operators.traffic import Form, Piece, nothing, reads, writes
from results.records.counts import Operation, Storage

FUSED = "flopledger.fused"

POINTWISE = frozenset(("elementwise", "activation", "copy"))

Chain = tuple[int, ...]


def with_fused() -> Rules:
    """Return the default rules and a rule for fused chains."""
    counted = Rule("elementwise", "counted", lambda operation: Cost(other_flop=needed(operation, "other_flop")))
    return {**TABLE, FUSED: counted}


def understand_fused() -> None:
    """Add the rule for fused chains to the default rules, in this process."""
    add_rule(FUSED, with_fused()[FUSED])


def fuse_pointwise(table: StepTable) -> StepTable:
    """Return the table with every chain of two or more pointwise operations merged at the position of its last one; the
    rules of `with_fused` count it."""
    into: dict[int, Chain] = {}
    for run in _runs(table.operations):
        for members in _chains(table.operations, run):
            into.update(dict.fromkeys(members, members))
    entries = []
    for position, operation in enumerate(table.operations):
        chain = into.get(position)
        if chain is None:
            entries.append(Entry(operation, (position,)))
        elif chain[-1] == position:
            entries.append(Entry(_fused(table, chain), chain))
    return rebuilt(table, entries)


def _is_view(operation: Operation) -> bool:
    rule = rule_of(operation.name)
    return rule is not None and rule.traffic is nothing


def _runs(operations: Sequence[Operation]) -> list[list[int]]:
    """Return the positions of pointwise operations of one phase that only views separate, with those views."""
    runs: list[list[int]] = [[]]
    for position, operation in enumerate(operations):
        joins = _is_view(operation) or kind_of(operation.name) in POINTWISE
        if runs[-1] and (not joins or operations[runs[-1][-1]].phase != operation.phase):
            runs.append([])
        if joins:
            runs[-1].append(position)
    return runs


def _chains(operations: Sequence[Operation], run: Sequence[int]) -> list[Chain]:
    """Return the connected parts of a run, each from a pointwise operation to a pointwise one; parts with a single one
    are left out."""
    part = _parts(operations, run)
    chains = []
    for leader in sorted(set(part.values())):
        members = [position for position in run if part[position] == leader]
        pointwise = [position for position in members if not _is_view(operations[position])]
        if len(pointwise) > 1:
            chain = tuple(position for position in members if pointwise[0] <= position <= pointwise[-1])
            if not _crossed(operations, chain, run):
                chains.append(chain)
    return chains


def _parts(operations: Sequence[Operation], run: Sequence[int]) -> Mapping[int, int]:
    """Return position → its connected part of the run: an operation joins the part whose storages it reads or
    writes."""
    part = {position: position for position in run}
    writer: dict[int, int] = {}
    for position in run:
        operation = operations[position]
        for storage in (*operation.reads, *operation.writes):
            if storage in writer:
                old, new = part[writer[storage]], part[position]
                part = {member: new if current == old else current for member, current in part.items()}
        writer.update(dict.fromkeys(operation.writes, position))
    return part


def _crossed(operations: Sequence[Operation], chain: Chain, run: Sequence[int]) -> bool:
    """Return whether moving the chain to its last operation would break a dependency: an operation in between writes
    what the chain reads or writes, or reads what the chain writes."""
    members = set(chain)
    others = [operations[position] for position in run if chain[0] < position < chain[-1] and position not in members]
    written = {storage for other in others for storage in other.writes}
    read = {storage for other in others for storage in other.reads}
    own = [operations[position] for position in chain]
    return any(written & {*member.reads, *member.writes} or read & set(member.writes) for member in own)


def _fused(table: StepTable, chain: Chain) -> Operation:
    """Build the operation that stands for a chain."""
    members = [table.operations[position] for position in chain if not _is_view(table.operations[position])]
    # storages that others read after the chain began, or that outlive the step
    wanted = {storage.id for storage in table.storages if storage.died_index is None}
    for position, operation in enumerate(table.operations):
        wanted |= set(operation.reads) if position > chain[0] and position not in chain else set()
    room = {storage.id: storage.nbytes for storage in table.storages}
    read: list[Piece] = []
    written: list[Piece] = []
    inner: set[int] = set()
    for member in members:
        read += [piece for piece in reads(member) if piece[0] not in inner]
        written += [piece for piece in writes(member) if piece[0] in wanted]
        inner |= set(member.writes)
    arriving, leaving = _unique_pieces(read, room), _unique_pieces(written, room)
    return replace(
        members[-1],
        name=FUSED,
        kind="elementwise",
        input_names=tuple(f"inputs[{index}]" for index in range(len(arriving))),
        input_shapes=tuple(form[0] for _, form in arriving),
        input_dtypes=tuple(form[1] for _, form in arriving),
        output_shapes=tuple(form[0] for _, form in leaving),
        output_dtypes=tuple(form[1] for _, form in leaving),
        attributes={"other_flop": total(members).all_flop, "of": [member.name for member in members]},
        reads=tuple(storage for storage, _ in arriving),
        writes=tuple(storage for storage, _ in leaving),
    )


def _unique_pieces(pieces: Sequence[Piece], room: Mapping[int, Size]) -> list[tuple[int, Form]]:
    """Return (storage, form) of each tensor that is moved, once; for parts of a storage that is moved whole, the whole
    tensor."""
    whole = {storage: form for storage, form, size in pieces if storage in room and size == room[storage]}
    return list(dict.fromkeys((storage, whole.get(storage, form)) for storage, form, _ in pieces))


Sizes = dict[Form, int]


def fused(operations: Sequence[Operation], storages: Sequence[Storage]) -> list[tuple[int | None, int]]:
    """Return (group, bytes) of each operation: the index of the operation that leads its group (None for a view), and
    the bytes that the group moves, on its leader (0 on the others).

    Operations are those of one trace, in order, with numeric sizes. Takes time linear in their tensors. Raises
    ValueError for an operation whose storages are not recorded.
    """
    room = {storage.id: storage.nbytes for storage in storages}
    outliving = {storage.id for storage in storages if storage.died_index is None}
    groups = group(operations, room)
    moved = _group_bytes(operations, groups, room, outliving)
    return [(g, moved[g] if g == i else 0) if g is not None else (None, 0) for i, g in enumerate(groups)]


def group(operations: Sequence[Operation], room: dict[int, int | None]) -> list[int | None]:
    """Return the position of each operation's group leader; None for a view. room: storage → its bytes."""
    joining = _Groups(room)
    for position, operation in enumerate(operations):
        if _is_view(operation):
            continue
        if len(operation.reads) != len(operation.input_names):
            raise ValueError(
                f"{operation.name} at index {operation.index}: expected a storage for each of "
                f"{len(operation.input_names)} tensors, got {len(operation.reads)}"
            )
        joining.add(position, operation)
    return [joining.leader(position) if position in joining.into else None for position in range(len(operations))]


class _Groups:
    """Groups under construction. They run in the order of their leaders: what a group reads, an earlier one made."""

    def __init__(self, room: dict[int, int | None]) -> None:
        self._room = room
        self.into: dict[int, int] = {}  # position → a position of the same group; a leader → itself
        self._phase: dict[int, str] = {}  # leader → its phase
        self._products: set[int] = set()
        self._after: dict[int, int] = {}  # leader → the latest other group that it needs
        self._maker: dict[int, int] = {}  # storage → position that last wrote it
        self._readers: dict[int, set[int]] = defaultdict(set)  # storage → groups that read what is in it now

    def leader(self, position: int) -> int:
        """Return the leader of the group that an operation is in."""
        while (above := self.into[position]) != position:
            self.into[position] = position = self.into[above]
        return position

    def add(self, position: int, operation: Operation) -> None:
        """Put an operation into a group, or start one."""
        pieces = reads(operation)
        sources = [
            (_held(size, self._room.get(storage)), self._maker[storage])
            for storage, _, size in pieces
            if storage in self._maker
        ]
        needed = {self.leader(maker) for _, maker in sources}
        for storage in operation.writes:  # who must have run before it is written again
            needed |= {self.leader(reader) for reader in self._readers.get(storage, ())}
            needed |= {self.leader(self._maker[storage])} if storage in self._maker else set()
        product = kind_of(operation.name) in PRODUCTS
        group = None if product else self._host(operation.phase, sources, needed)
        if group is None:
            group = position
            self._phase[position], self._after[position] = operation.phase, -1
            self._products |= {position} if product else set()
        self.into[position] = group
        self._after[group] = max(-1, self._after[group], *({self.leader(other) for other in needed} - {group}))
        for storage, _, _ in pieces:
            self._readers[storage].add(group)
        for storage in operation.writes:
            self._maker[storage] = position
            self._readers.pop(storage, None)

    def _host(self, phase: str, sources: list[tuple[int, int]], needed: set[int]) -> int | None:
        """Return the group to join, merged with the groups that can run with it; None where there is none."""
        here = [(size, maker) for size, maker in sources if self._phase[self.leader(maker)] == phase]
        if not here:
            return None
        host = self.leader(max(here)[1])
        later = [other for other in needed if other > host]
        if not all(self._may_join(other, host) for other in later):
            return None
        for other in later:
            self._join(other, host)
        for other in sorted((other for other in needed if other < host), reverse=True):
            if not self._may_join(host, other):
                break  # `host` has to run after `other`
            self._join(host, other)
            host = other
        return host

    def _may_join(self, later: int, earlier: int) -> bool:
        """Return whether a later group without a product could have started as early as this one."""
        free = later not in self._products and self._after[later] < earlier
        return free and self._phase[later] == self._phase[earlier]

    def _join(self, later: int, earlier: int) -> None:
        self.into[later] = earlier
        self._after[earlier] = max(self._after[earlier], self._after[later])


def _held(size: int, room: int | None) -> int:
    """Return the bytes of a tensor that exist in memory: an expanded tensor has more elements than its storage."""
    return size if room is None else min(size, room)


def _group_bytes(
    operations: Sequence[Operation], groups: Sequence[int | None], room: dict[int, int | None], outliving: set[int]
) -> dict[int, int]:
    """Return the bytes that each group moves."""
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
