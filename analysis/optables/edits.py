"""Changes of a table of operations that keep it whole: insert, replace, remove.

Positions are indices of the table as it was. Afterwards operations are numbered from 0 again, links to forward
operations and the lives of storages lead to the same things as before; a link to an operation that was replaced leads
to the first that stands in its place. A storage that nothing names any more is gone. An operation that would read what
nobody made is refused. The table that was given is not changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.optables.builder import StepTable
from results.records.operations import Operation, Storage

BEFORE = -1
"""born_index of what was there before the step."""


@dataclass(frozen=True)
class Entry:
    """One operation of the new table. stands_for: positions in the old one that lead here; its links are old ones."""

    operation: Operation
    stands_for: tuple[int, ...] = ()


def insert(
    table: StepTable, position: int, operations: Sequence[Operation], storages: Iterable[Storage] = ()
) -> StepTable:
    """operations, in front of the one at `position`; at the end where that is the table's length."""
    _check(table, [min(position, len(table.operations) - 1)])
    entries = [*_same(table)]
    entries[position:position] = [Entry(operation) for operation in operations]
    return rebuilt(table, entries, storages)


def remove(table: StepTable, positions: Iterable[int]) -> StepTable:
    """The table without these. Raises ValueError where something reads what only they made."""
    return replaced(table, dict.fromkeys(positions, ()))


def replaced(
    table: StepTable, instead: Mapping[int, Sequence[Operation]], storages: Iterable[Storage] = ()
) -> StepTable:
    """The table with each operation at one of these positions exchanged for others (none: removed)."""
    _check(table, instead)
    entries: list[Entry] = []
    for old in _same(table):
        position = old.stands_for[0]
        if position in instead:
            entries += [Entry(operation, (position,)) for operation in instead[position]]
        else:
            entries.append(old)
    return rebuilt(table, entries, storages)


def rebuilt(table: StepTable, entries: Sequence[Entry], storages: Iterable[Storage] = ()) -> StepTable:
    """The table of these entries, numbered and linked anew. storages: those that the old table had not.

    Raises ValueError for a storage that is not known, or is read before anything made it.
    """
    moved: dict[int, int] = {}
    ends: dict[int, int] = {}
    for index, entry in enumerate(entries):
        for old in entry.stands_for:
            moved.setdefault(old, index)
            ends[old] = index
    operations = tuple(
        replace(
            entry.operation,
            index=index,
            forward_index=None if entry.operation.forward_index is None else moved.get(entry.operation.forward_index),
        )
        for index, entry in enumerate(entries)
    )
    known = {storage.id: storage for storage in (*table.storages, *storages)}
    return StepTable(operations, _lives(operations, known, ends))


def _lives(
    operations: Sequence[Operation], known: Mapping[int, Storage], ends: Mapping[int, int]
) -> tuple[Storage, ...]:
    """Storages in order of number, with births and deaths in the new numbering; `ends`: old index → last new one."""
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for operation in operations:
        for storage in (*operation.reads, *operation.writes):
            if storage >= 0 and storage not in known:
                raise ValueError(f"{operation.name} at index {operation.index} names storage {storage}: there is none")
            used[storage] = operation.index
        for storage in operation.reads:
            if storage >= 0 and known[storage].born_index != BEFORE and storage not in made:
                raise ValueError(
                    f"{operation.name} at index {operation.index} reads storage {storage}, which nothing made before"
                )
        for storage in operation.writes:
            made.setdefault(storage, operation.index)
    kept = []
    for number, its in sorted(known.items()):
        if number not in used and its.born_index != BEFORE:
            continue
        born = BEFORE if its.born_index == BEFORE else made[number]
        died = its.died_index
        if died is not None:
            died = max(ends.get(died, BEFORE), used.get(number, BEFORE))
        kept.append(replace(its, born_index=born, died_index=died))
    return tuple(kept)


def _same(table: StepTable) -> list[Entry]:
    return [Entry(operation, (position,)) for position, operation in enumerate(table.operations)]


def _check(table: StepTable, positions: Iterable[int]) -> None:
    for position in positions:
        if not 0 <= position < len(table.operations):
            raise ValueError(f"expected a position from 0 to {len(table.operations) - 1}, got {position}")


def renumbered(table: StepTable) -> StepTable:
    """The same with storages numbered from 0, as a tracer numbers them: an edit may have left some out."""
    numbers = {storage.id: number for number, storage in enumerate(table.storages)}
    operations = (
        replace(
            operation,
            reads=tuple(numbers[storage] for storage in operation.reads),
            writes=tuple(numbers[storage] for storage in operation.writes),
        )
        for operation in table.operations
    )
    return StepTable(tuple(operations), tuple(replace(storage, id=numbers[storage.id]) for storage in table.storages))
