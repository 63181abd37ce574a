"""What activation checkpointing would bring: memory against recomputation, from the table of a step without it.

A checkpointed stretch of the forward pass keeps what goes into it and what comes out; what it makes in between goes as
in a pass without gradients, and is made again in the backward pass, right before the first operation that asks for
something of the stretch (torch.utils.checkpoint without re-entry, which also stops as soon as the last tensor that is
asked for is there). `checkpointed` writes the table and the ledger that such a step has, `curve` evaluates several
choices of stretches by their footprint and keeps those that no other one beats in both memory and FLOP.

Not claimed: that the curve is the best there is. It looks at stretches of whole units of the model's chain, alone and
in balanced groups, and adds them in order of what they save for each FLOP. Of a storage that an eager forward pass
holds in a variable after its last use nothing is known here, as the step without checkpoints held it anyway: it is
taken to go after its last use. The generator's state that a checkpoint saves is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, TypeVar

from analysis.footprint.live_bytes import peak_bytes
from analysis.operators import registry
from results.records.operations import Operation, Storage

Stretch = tuple[int, int]
"""Indices of the first and the last forward operation."""

Record = TypeVar("Record", Operation, Storage)

MOST = 80
"""Choices that are evaluated, at most."""

WORTH = 1000
"""A choice is listed if it saves more than this part of the one before."""


@dataclass(frozen=True)
class Unit:
    """A module of the chain that a model is: its path, and the forward operations from its first to its last."""

    name: str
    stretch: Stretch


@dataclass(frozen=True)
class Choice:
    """What becomes of a step if these stretches of units are checkpointed.

    peak_bytes: of its eager footprint. recomputed_flop: model FLOP and all other that are done again; recomputed_ratio:
    the same over those of the forward pass. stretches: names of the units of each.
    """

    peak_bytes: int
    recomputed_flop: int
    recomputed_ratio: float
    stretches: tuple[tuple[str, ...], ...]


def checkpointed(
    operations: Sequence[Operation], storages: Sequence[Storage], stretches: Iterable[Stretch]
) -> tuple[tuple[Operation, ...], tuple[Storage, ...]]:
    """The table and the ledger of the step with these stretches checkpointed. Stretches must not overlap."""
    again = [
        found for each in sorted(stretches) if (found := _Recomputation.of(operations, storages, each)) is not None
    ]
    rows: list[tuple[Operation, bool]] = []
    number = len(storages)
    copies: dict[int, tuple[_Recomputation, dict[int, int]]] = {}
    for each in again:
        names = {storage: number + place for place, storage in enumerate(each.made)}
        number += len(names)
        copies[each.trigger] = (each, names)
    asking = {index: names for each, names in copies.values() for index in each.asking}
    for operation in operations:
        if operation.index in copies:
            made, names = copies[operation.index]
            rows += [(_renamed(_with(op, phase="recompute"), names), True) for op in made.operations]
        rows.append((_renamed(operation, asking.get(operation.index, {})), False))
    table = tuple(
        operation if operation.index == place else _with(operation, index=place)
        for place, (operation, _) in enumerate(rows)
    )
    moved = {old.index: place for place, (old, copied) in enumerate(rows) if not copied}
    return table, _ledger(table, storages, moved, again, [names for _, names in copies.values()])


@dataclass(frozen=True)
class _Recomputation:
    """A stretch that is made again. operations: what is; made: the storages that it makes; dropped: those made in the
    stretch that only the backward pass of the stretch held; trigger: the backward operation before which it is made
    again; asking: those that read it."""

    operations: tuple[Operation, ...]
    made: tuple[int, ...]
    dropped: frozenset[int]
    trigger: int
    asking: tuple[int, ...]

    @classmethod
    def of(
        cls, operations: Sequence[Operation], storages: Sequence[Storage], stretch: Stretch
    ) -> _Recomputation | None:
        """None where the backward pass asks for nothing that the stretch makes."""
        first, last = stretch
        inner = [each for each in operations[first : last + 1] if each.phase in ("forward", "loss")]
        inside = {s.id for s in storages if first <= s.born_index <= last}
        backward = [
            each
            for each in operations[last + 1 :]
            if each.forward_index is not None and first <= each.forward_index <= last
        ]
        asking = [each for each in backward if inside & {*each.reads, *each.writes}]
        needed = inside & {number for each in asking for number in each.reads}
        if not needed:
            return None
        ends = max(each.index for each in inner if each.kind != "view" and needed & set(each.writes))
        done = tuple(each for each in inner if each.index <= ends)
        born = {s.id: s.born_index for s in storages}
        made = tuple(sorted(number for number in inside if first <= born[number] <= ends))
        began, own = min(each.index for each in backward), {each.index for each in backward}
        dropped = frozenset(s.id for s in storages if s.id in inside and s.died_index in own)
        saved = [each for each in backward if any(born[number] < began for number in each.reads)]
        return cls(done, made, dropped, saved[0].index, tuple(each.index for each in asking))


def _renamed(operation: Operation, names: Mapping[int, int]) -> Operation:
    if not names:
        return operation
    reads = tuple(names.get(number, number) for number in operation.reads)
    return _with(operation, reads=reads, writes=tuple(names.get(number, number) for number in operation.writes))


def _with(record: Record, **changes: Any) -> Record:
    """What dataclasses.replace gives of a record without slots, in a tenth of its time: a curve asks very often."""
    made = object.__new__(type(record))
    made.__dict__.update(record.__dict__, **changes)
    return made


def _ledger(
    table: Sequence[Operation],
    storages: Sequence[Storage],
    moved: Mapping[int, int],
    again: Sequence[_Recomputation],
    copies: Sequence[Mapping[int, int]],
) -> tuple[Storage, ...]:
    """The storages of the new table. What is dropped and what is made again goes after its last use."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for operation in table:
        for number in (*operation.reads, *operation.writes):
            first.setdefault(number, operation.index)
            last[number] = operation.index
    dropped = frozenset().union(*(each.dropped for each in again))
    found = []
    for each in storages:
        born = each.born_index if each.born_index < 0 else moved[each.born_index]
        died = each.died_index
        if died is not None:
            old = died if died < 0 else moved[died]
            died = last.get(each.id, born) if each.id in dropped else max(old, last.get(each.id, old))
        same = (born, died) == (each.born_index, each.died_index)
        found.append(each if same else _with(each, born_index=born, died_index=died))
    size = {each.id: each.nbytes for each in storages}
    for names in copies:
        found += [Storage(number, size[old], "temporary", first[number], last[number]) for old, number in names.items()]
    return tuple(found)


def units(operations: Sequence[Operation]) -> tuple[Unit, ...]:
    """The chain of modules that the forward pass runs through, from the modules' paths.

    A unit is a module of the model's own, or a member of a list in it (whose name ends in a number). One whose
    operations others interrupt joins with these.
    """
    forward = [each for each in operations if each.phase == "forward" and each.module]
    holders = frozenset().union(*(_holders(each.module) for each in forward))
    found: list[tuple[list[str], Stretch]] = []
    for operation in forward:
        name = _unit(operation.module, holders)
        known = next((place for place, (names, _) in enumerate(found) if name in names), None)
        if known is None:
            found.append(([name], (operation.index, operation.index)))
        else:
            joined = [each for names, _ in found[known:] for each in names]
            found[known:] = [(joined, (found[known][1][0], operation.index))]
    return tuple(Unit(" + ".join(names), stretch) for names, stretch in found)


def _holders(module: str) -> frozenset[str]:
    """The paths above the first member of a list that a module is in."""
    parts = module.split(".")
    place = _member(parts)
    return frozenset(".".join(parts[:depth]) for depth in range(1, place + 1)) if place else frozenset()


def _member(parts: Sequence[str]) -> int:
    """Which part of a path is the first member of a list; 0: none, as the model's own modules are in no list."""
    return next((place for place, part in enumerate(parts) if place and re.search(r"\d$", part)), 0)


def _unit(module: str, holders: frozenset[str]) -> str:
    """The path up to the member of a list; else up to the first module that holds no list."""
    parts = module.split(".")
    if place := _member(parts):
        return ".".join(parts[: place + 1])
    paths = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return next((path for path in paths if path not in holders), module)


def curve(operations: Sequence[Operation], storages: Sequence[Storage], most: int = MOST) -> tuple[Choice, ...]:
    """Choices of stretches, from none on: each needs less memory, and no fewer FLOP, than the one before.

    Raises what `analysis.footprint.live_bytes.footprint` raises.
    """
    chain = units(operations)
    flop = [_flop(each) for each in operations]
    forward = sum(flop[each.index] for each in operations if each.phase in ("forward", "loss"))
    found = []
    for groups in _choices(operations, storages, chain, most):
        stretches = [(group[0].stretch[0], group[-1].stretch[1]) for group in groups]
        table, ledger = checkpointed(operations, storages, stretches)
        again = sum(_flop(each) for each in table if each.phase == "recompute") - sum(
            flop[each.index] for each in operations if each.phase == "recompute"
        )
        names = tuple(tuple(unit.name for unit in group) for group in groups)
        found.append(Choice(peak_bytes(table, ledger), again, again / forward if forward else 0.0, names))
    return _front(found)


def stretches_of(operations: Sequence[Operation], choice: Choice) -> list[Stretch]:
    """Where a choice's stretches are in a step, whose batch may be another one. KeyError: it has no such unit."""
    known = {unit.name: unit.stretch for unit in units(operations)}
    return [(known[names[0]][0], known[names[-1]][1]) for names in choice.stretches]


def _front(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Those that none beats in both, in order of FLOP, without what is hardly less."""
    found: list[Choice] = []
    for each in sorted(choices, key=lambda c: (c.recomputed_flop, c.peak_bytes, len(c.stretches))):
        if not found or (found[-1].peak_bytes - each.peak_bytes) * WORTH > found[-1].peak_bytes:
            found.append(each)
    return tuple(found)


def _choices(
    operations: Sequence[Operation], storages: Sequence[Storage], chain: Sequence[Unit], most: int
) -> Iterable[list[Sequence[Unit]]]:
    """Groups of units to checkpoint: none; then, for coarser and coarser groupings, the first few and all of them, in
    order of what they save for each FLOP."""
    yield []
    saved = [_saved(operations, storages, unit.stretch, out=True) for unit in chain]
    counts = sorted({len(chain), *(max(1, len(chain) // step) for step in (2, 3, 4, 6)), isqrt(len(chain)) or 1})
    each = max(1, (most - 1) // max(1, len(counts)))
    for count in counts:
        groups = _balanced(chain, saved, count)
        worth = sorted(groups, key=lambda group: _worth(operations, storages, group), reverse=True)
        steps = sorted({-(-len(worth) * step // each) for step in range(1, each + 1)})
        for step in steps:
            yield sorted(worth[:step], key=lambda group: group[0].stretch)


def _balanced(chain: Sequence[Unit], saved: Sequence[int], count: int) -> list[Sequence[Unit]]:
    """The chain in so many groups at most, whose largest saves as little as can be: the limit is halved for."""
    if not chain:
        return []

    def grouped(limit: int) -> list[Sequence[Unit]]:
        groups: list[list[Unit]] = [[]]
        there = 0
        for unit, nbytes in zip(chain, saved, strict=True):
            if groups[-1] and there + nbytes > limit:
                groups.append([])
                there = 0
            groups[-1].append(unit)
            there += nbytes
        return list(groups)

    low, high = max(saved) - 1, sum(saved)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if len(grouped(middle)) <= count else (middle, high)
    return grouped(max(high, max(saved)))


def _worth(operations: Sequence[Operation], storages: Sequence[Storage], group: Sequence[Unit]) -> float:
    """Bytes that a group saves for each FLOP that it does again."""
    stretch = (group[0].stretch[0], group[-1].stretch[1])
    flop = sum(_flop(each) for each in operations[stretch[0] : stretch[1] + 1])
    return _saved(operations, storages, stretch) / (flop + 1)


def _saved(operations: Sequence[Operation], storages: Sequence[Storage], stretch: Stretch, out: bool = False) -> int:
    """Bytes that a stretch makes and the backward pass reads. out: what its last operation makes, too."""
    first, last = stretch
    began = next((each.index for each in operations if each.phase == "backward"), len(operations))
    return sum(
        each.nbytes or 0
        for each in storages
        if first <= each.born_index < last + out and (each.died_index is None or each.died_index >= began)
    )


def _flop(operation: Operation) -> int:
    cost = registry.cost(operation)
    return int(cost.model_flop + cost.other_flop)
