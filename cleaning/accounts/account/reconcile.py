"""From what counters gave and what the model called to accounts: each number, and why it is not the exact one.

Exact is the training step: products of forward and loss, and of backward. Counters see the model in evaluation; what
that changes is a cause as well. A counter's total is looked at once, at the end, to say what stays unexplained.
"""

import importlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from analysis.operators.registry import bucket_of
from cleaning.accounts.account.explain import Causes, explain
from cleaning.accounts.vocabulary.causes import CONVENTION
from cleaning.accounts.vocabulary.items import Native, exact_flop
from results.records.answers import Account, AccountCause
from results.records.counts import CallRecording, FlopCount, Operation
from results.records.rows import WHOLE

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
