"""The account: from a counter's items to causes that lead from the exact count to its number.

Items come from the counter's documented rule applied to our recording; its total is seen by nobody here. Each product
of the recording belongs to the narrowest item around it. What an item counts beyond its products needs a cause of its
own; where the rule gives none, nothing is said, and the difference stays unexplained. One is known to all: rules go by
sizes, which do not tell that numbers are complex.

From what counters gave and what the model called to accounts: each number, and why it is not the exact one.

Exact is the training step: products of forward and loss, and of backward. Counters see the model in evaluation; what
that changes is a cause as well. A counter's total is looked at once, at the end, to say what stays unexplained.
"""

import importlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from analysis.operators.registry import bucket_of
from cleaning.accounts.vocabulary.items import CONVENTION, PRODUCT, Item, Native, exact_flop, is_complex, real_flop
from results.records.answers import Account, AccountCause
from results.records.counts import CallRecording, FlopCount, Operation
from results.records.rows import WHOLE

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


RULES = {
    "flopledger": "cleaning.accounts.rules.flopledger",
    "flop_counter_mode": "cleaning.accounts.rules.flop_counter_mode",
    "torch_profiler": "cleaning.accounts.rules.torch_profiler",
    "fvcore": "cleaning.accounts.rules.fvcore",
    "ptflops": "cleaning.accounts.rules.ptflops",
    "ptflops_aten": "cleaning.accounts.rules.ptflops_aten",
    "pthflops": "cleaning.accounts.rules.pthflops",
    "deepspeed": "cleaning.accounts.rules.deepspeed",
    "calflops": "cleaning.accounts.rules.calflops",
    "thop": "cleaning.accounts.rules.thop",
    "torchinfo": "cleaning.accounts.rules.torchinfo",
}
"""Counter → module with UNIT ("mac" or "flop", of its native total) and count(recording, phase) -> Counted."""


def rule_of(counter: str) -> Any:
    """The module with a counter's rule. Raises KeyError for a counter that has none."""
    return importlib.import_module(RULES[counter])


PHASES: Mapping[str, tuple[str, ...]] = {"forward": ("forward", "loss"), "backward": ("backward",)}
"""Pass → phases of a training step that belong to it."""

OWN = "flopledger"

Accounts = tuple[list[Account], list[AccountCause]]


def reconcile(model: str, batch_size: int, recording: CallRecording, rows: Iterable[FlopCount]) -> Accounts:
    """The account of every total among the rows. Counters that failed have a row with the reason and no causes."""
    accounts: list[Account] = []
    causes: list[AccountCause] = []
    for row in rows:
        if row.scope != WHOLE or row.operator or row.batch_size != batch_size:
            continue
        account, found = _account(model, recording, row)
        accounts.append(account)
        causes += found
    return accounts, causes


def exact(recording: CallRecording, phase: str, members: Sequence[str] | None = None) -> int | None:
    """Model FLOP of one pass of a training step; of the recorded evaluation where no step could be trained. None where
    a call of the pass has no rule: its total is not known.

    members: the step's phases that belong to it; None: those of PHASES.
    """
    phases = PHASES[phase] if members is None else members
    return None if unknown_calls(recording, phases) else at_least(recording, phases)


def at_least(recording: CallRecording, phases: Sequence[str]) -> int:
    """Model FLOP of the calls that have a rule, of some phases of a step."""
    return sum(exact_flop(operation) for operation in _table(recording) if operation.phase in phases)


def unknown_calls(recording: CallRecording, phases: Sequence[str]) -> int:
    """How many calls of these phases have no rule, so that nobody knows what products they hold."""
    return sum(
        bucket_of(operation.name) == "not_understood" for operation in _table(recording) if operation.phase in phases
    )


def _table(recording: CallRecording) -> Sequence[Operation]:
    return recording.training or recording.operations


def _account(model: str, recording: CallRecording, row: FlopCount) -> tuple[Account, list[AccountCause]]:
    native = row.native_value if row.printed is None else row.printed
    known = exact(recording, row.phase) if row.phase in PHASES else None
    causes: Causes | None = None
    partial = known is None and row.phase in PHASES
    if row.status == "ok" and native is not None and row.counter in RULES and not partial:
        causes = _causes(recording, row)
    left = None
    if causes is not None and known is not None and native is not None:
        left = Fraction(native) - known - sum(causes.values(), Fraction(0))
    ours = partial and row.counter == OWN  # it stands on the same calls, and has no total either
    account = Account(
        model=model,
        batch_size=row.batch_size,
        counter=row.counter,
        phase=row.phase,
        status=row.status,
        reason=row.reason,
        native_unit=row.native_unit,
        native_value=None if ours else native,
        flop=None if ours else row.flop,
        exact_flop=known,
        flop_ratio=None if row.flop is None or not known else row.flop / known,
        unexplained_flop=None if left is None else _number(left),
        largest_cause="" if causes is None else largest(causes),
        parameters=row.parameters,
        ignored=row.ignored,
        not_understood=row.not_understood,
        duration_s=row.duration_s,
        peak_memory_bytes=row.peak_memory_bytes,
        at_least_flop=at_least(recording, PHASES[row.phase]) if partial else None,
        unknown_calls=unknown_calls(recording, PHASES[row.phase]) if row.phase in PHASES else None,
    )
    return account, [] if causes is None else _rows(account, causes)


def _causes(recording: CallRecording, row: FlopCount) -> Causes:
    rule = rule_of(row.counter)
    items, missed = rule.count(recording, row.phase)
    found: defaultdict[tuple[str, str, str], Native] = defaultdict(int)
    for source in (explain(recording, row.phase, rule.UNIT, items, missed), _evaluation(recording, row.phase)):
        for key, native in source.items():
            found[key] += native
    return {key: native for key, native in found.items() if native}


def _evaluation(recording: CallRecording, phase: str) -> Causes:
    """What the products of the evaluated graph are more, or less, than those of a training step."""
    if not recording.training:
        return {}
    change: Counter[tuple[str, str, str]] = Counter()
    for table, sign in ((recording.operations, 1), (recording.training, -1)):
        for operation in table:
            if operation.phase in PHASES[phase]:
                change["eval_graph", operation.kind, operation.module] += sign * exact_flop(operation)
    return {key: flop for key, flop in change.items() if flop}


def by_cause(causes: Causes) -> dict[str, Native]:
    """Cause → what it adds in all, the largest first."""
    sums: defaultdict[str, Native] = defaultdict(int)
    for (cause, _, _), native in causes.items():
        sums[cause] += native
    return dict(sorted(sums.items(), key=lambda item: -abs(Fraction(item[1]))))


def largest(causes: Causes) -> str:
    """The cause that adds or takes most beside the convention; "" if there is none."""
    return next((cause for cause, native in by_cause(causes).items() if cause != CONVENTION and native), "")


def _rows(account: Account, causes: Causes) -> list[AccountCause]:
    ordered = sorted(causes.items(), key=lambda item: (-abs(Fraction(item[1])), item[0]))
    return [
        AccountCause(
            model=account.model,
            batch_size=account.batch_size,
            counter=account.counter,
            phase=account.phase,
            cause=cause,
            kind=kind,
            module=module,
            flop=_number(native),
        )
        for (cause, kind, module), native in ordered
    ]


def _number(native: Native) -> int | float:
    """Whole numbers as such; a fraction, which only a division by the batch leaves, as the nearest float."""
    exact_native = Fraction(native)
    return int(exact_native) if exact_native.denominator == 1 else float(exact_native)
