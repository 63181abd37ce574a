"""Chains of pointwise operations made into one that reads its inputs once and writes its outputs once.

A chain is operations of `POINTWISE` kinds that follow each other with nothing but views between, in one phase, each
reading what another of the chain made. FLOP are unchanged, and so is everything that the chain leaves behind; what only
the chain reads is no longer written. Which operations a product could take in as its epilogue is listed, for sizes that
are numbers, by `analysis/profile/fusion.py`; here products stay as they are, and sizes may be symbols. Not claimed:
that a compiler does it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.operators.cost import Cost, Size, needed
from analysis.operators.registry import TABLE, Rule, Rules, add_rule, kind_of, rule_of, total
from analysis.operators.step_table import Entry, StepTable, rebuilt
from analysis.operators.traffic import Form, Piece, nothing, reads, writes
from results.records.counts import Operation

FUSED = "flopledger.fused"

POINTWISE = frozenset(("elementwise", "activation", "copy"))

Chain = tuple[int, ...]


def with_fused(rules: Rules = TABLE) -> Rules:
    """A table that understands fused chains, too."""
    counted = Rule("elementwise", "counted", lambda operation: Cost(other_flop=needed(operation, "other_flop")))
    return {**rules, FUSED: counted}


def understand_fused() -> None:
    """Let the default table of rules understand fused chains, in this process."""
    add_rule(FUSED, with_fused()[FUSED])


def fuse_pointwise(table: StepTable, rules: Rules = TABLE) -> StepTable:
    """The table with every chain of two or more in the place of its last operation, to be costed with
    `with_fused(rules)`."""
    into: dict[int, Chain] = {}
    for run in _runs(table.operations, rules):
        for members in _chains(table.operations, run, rules):
            into.update(dict.fromkeys(members, members))
    entries = []
    for position, operation in enumerate(table.operations):
        chain = into.get(position)
        if chain is None:
            entries.append(Entry(operation, (position,)))
        elif chain[-1] == position:
            entries.append(Entry(_fused(table, chain, rules), chain))
    return rebuilt(table, entries)


def _is_view(operation: Operation, rules: Rules) -> bool:
    rule = rule_of(operation.name, rules)
    return rule is not None and rule.traffic is nothing


def _runs(operations: Sequence[Operation], rules: Rules) -> list[list[int]]:
    """Positions of pointwise operations that nothing but views separates, phase by phase, those views with them."""
    runs: list[list[int]] = [[]]
    for position, operation in enumerate(operations):
        joins = _is_view(operation, rules) or kind_of(operation.name, rules) in POINTWISE
        if runs[-1] and (not joins or operations[runs[-1][-1]].phase != operation.phase):
            runs.append([])
        if joins:
            runs[-1].append(position)
    return runs


def _chains(operations: Sequence[Operation], run: Sequence[int], rules: Rules) -> list[Chain]:
    """The parts of a run that hang together by what they make, from a pointwise operation to a pointwise one; those of
    one such operation are left out."""
    part = _parts(operations, run)
    chains = []
    for leader in sorted(set(part.values())):
        members = [each for each in run if part[each] == leader]
        work = [each for each in members if not _is_view(operations[each], rules)]
        if len(work) > 1:
            chain = tuple(each for each in members if work[0] <= each <= work[-1])
            if not _crossed(operations, chain, run):
                chains.append(chain)
    return chains


def _parts(operations: Sequence[Operation], run: Sequence[int]) -> Mapping[int, int]:
    """Position → the part of the run that it is in: it reads or writes what another one of that part wrote."""
    part = {position: position for position in run}
    writer: dict[int, int] = {}
    for position in run:
        operation = operations[position]
        for storage in (*operation.reads, *operation.writes):
            if storage in writer:
                old, new = part[writer[storage]], part[position]
                part = {each: new if current == old else current for each, current in part.items()}
        writer.update(dict.fromkeys(operation.writes, position))
    return part


def _crossed(operations: Sequence[Operation], chain: Chain, run: Sequence[int]) -> bool:
    """Whether the order counts between a chain, which runs where its last operation did, and others on its way: one
    writes what the chain reads, or reads what the chain writes."""
    members = set(chain)
    others = [operations[each] for each in run if chain[0] < each < chain[-1] and each not in members]
    changed = {storage for other in others for storage in other.writes}
    looked_at = {storage for other in others for storage in other.reads}
    return any(
        changed & {*operations[each].reads, *operations[each].writes} or looked_at & set(operations[each].writes)
        for each in chain
    )


def _fused(table: StepTable, chain: Chain, rules: Rules) -> Operation:
    """One operation for a chain."""
    members = [table.operations[each] for each in chain if not _is_view(table.operations[each], rules)]
    wanted = _wanted(table, chain)
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
        input_names=tuple(f"inputs[{place}]" for place in range(len(arriving))),
        input_shapes=tuple(form[0] for _, form in arriving),
        input_dtypes=tuple(form[1] for _, form in arriving),
        output_shapes=tuple(form[0] for _, form in leaving),
        output_dtypes=tuple(form[1] for _, form in leaving),
        attributes={"other_flop": total(members, rules).all_flop, "of": [member.name for member in members]},
        reads=tuple(storage for storage, _ in arriving),
        writes=tuple(storage for storage, _ in leaving),
    )


def _unique_pieces(pieces: Sequence[Piece], room: Mapping[int, Size]) -> list[tuple[int, Form]]:
    """(storage, form) of what is moved: a tensor once, and nothing more of a storage that is moved whole."""
    whole = {storage: form for storage, form, size in pieces if storage in room and size == room[storage]}
    return list(dict.fromkeys((storage, whole.get(storage, form)) for storage, form, _ in pieces))


def _wanted(table: StepTable, chain: Chain) -> set[int]:
    """Storages that others read after the chain began, or that outlive the step."""
    members = set(chain)
    read = {
        storage
        for position, operation in enumerate(table.operations)
        if position > chain[0] and position not in members
        for storage in operation.reads
    }
    return read | {storage.id for storage in table.storages if storage.died_index is None}
