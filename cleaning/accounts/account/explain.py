"""The account: from a counter's items to causes that lead from the exact count to its number.

Items come from the counter's documented rule applied to our recording; its total is seen by nobody here. Each product
of the recording belongs to the narrowest item around it. What an item counts beyond its products needs a cause of its
own; where the rule gives none, nothing is said, and the difference stays unexplained. One is known to all: rules go by
sizes, which do not tell that numbers are complex.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

from cleaning.accounts.vocabulary.causes import CONVENTION, PRODUCT
from cleaning.accounts.vocabulary.items import Item, Native, exact_flop, is_complex, real_flop
from results.records.counts import CallRecording, Operation

WEIGHT = "weight_calculation_not_seen"
"""The cause for products that a layer's call runs before the layer's own."""

FLOP_PER_UNIT = {"flop": 1, "mac": 2}

Key = tuple[str, str, str]
"""Cause, kind of operation, path of the module."""

Causes = dict[Key, Native]
"""What each cause adds to the exact count, in native units: exact FLOP + all of it = the counter's number."""


def explain(
    recording: CallRecording, phase: str, unit: str, items: Sequence[Item], missed: Callable[[Operation], str]
) -> Causes:
    """The causes between the exact FLOP of one pass and a counter's native number.

    unit: "mac" or "flop", of the native number. missed: the cause for a product that no item stands for.
    """
    account: defaultdict[Key, Native] = defaultdict(int)
    covered, uncovered = _shared_out(recording, phase, [item for item in items if item.cause == PRODUCT])
    for operation in uncovered:
        account[missed(operation), operation.kind, operation.module] -= exact_flop(operation)
    for item, operations in covered:
        own = _own(item, operations, FLOP_PER_UNIT[unit]) if phase == "forward" else operations
        for operation in operations[: len(operations) - len(own)]:
            account[WEIGHT, operation.kind, operation.module] -= exact_flop(operation)
        _product(account, item, own, FLOP_PER_UNIT[unit])
    for item in items:
        if item.cause != PRODUCT:
            account[item.cause, item.kind, item.module] += item.native
    return {key: native for key, native in account.items() if native}


def _own(item: Item, operations: Sequence[Operation], per_unit: int) -> Sequence[Operation]:
    """The products that an item counts: its last one alone, where that is its number to the last FLOP and more ran
    before. So a layer looks whose weight is calculated each time (a parametrization, spectral norm)."""
    last = operations[-1:]
    return last if len(operations) > 1 and item.native * per_unit == exact_flop(last[0]) else operations


def _product(account: defaultdict[Key, Native], item: Item, operations: Sequence[Operation], per_unit: int) -> None:
    exact = sum(exact_flop(operation) for operation in operations)
    for operation in operations:
        flop = exact_flop(operation)
        account[CONVENTION, operation.kind, operation.module] += Fraction(flop, per_unit) - flop
    beyond = item.native - Fraction(exact, per_unit)
    if beyond:
        for operation in filter(is_complex, operations):
            less = Fraction(real_flop(operation) - exact_flop(operation), per_unit)
            account["complex_as_real", operation.kind, operation.module] += less
            beyond -= less
    if beyond and item.fault:
        account[item.fault, operations[0].kind if operations else item.kind, item.module] += beyond


def _shared_out(
    recording: CallRecording, phase: str, products: Sequence[Item]
) -> tuple[list[tuple[Item, list[Operation]]], list[Operation]]:
    """(each item with the operations that are its, the operations that are nobody's)."""
    narrow = sorted(range(len(products)), key=lambda place: products[place].last - products[place].first)
    owner: dict[int, int] = {}
    for place in narrow:
        for index in range(products[place].first, products[place].last):
            owner.setdefault(index, place)
    again = _first_time(recording)
    found: list[tuple[Item, list[Operation]]] = [(item, []) for item in products]
    nobodys = []
    for operation in recording.operations:
        if operation.phase != phase or not exact_flop(operation):
            continue
        mine = owner.get(operation.index)
        if mine is None and operation.forward_index is not None:
            mine = owner.get(again.get(operation.forward_index, operation.forward_index))
        if mine is None:
            nobodys.append(operation)
        else:
            found[mine][1].append(operation)
    return found, nobodys


def _first_time(recording: CallRecording) -> dict[int, int]:
    """Index of a product that checkpointing calculates again → that of the same one in the forward pass: where torch
    enters the engine a second time, the backward pass belongs to the former."""
    first: defaultdict[tuple[str, str, tuple[tuple[int, ...], ...]], list[int]] = defaultdict(list)
    found: dict[int, int] = {}
    for operation in recording.operations:
        key = operation.module, operation.name, operation.input_shapes
        if operation.phase == "forward":
            first[key].append(operation.index)
        elif operation.phase == "recompute" and first[key]:
            found[operation.index] = first[key].pop(0)
    return found
