"""`python -m runners.count MODEL…`: how many FLOP a model needs, by every counter, and why they differ.

Each counter runs in a process of its own on the same model and inputs; a recording of what the model calls gives the
exact count and, by each counter's own rule, every FLOP of difference by cause. Nothing is trained, timed or downloaded.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable
from runners.cli.arguments import choice_error
from runners.cli.exits import FAILED, MISTAKE, Mistake, guarded, instructed
from runners.cli.model_options import check_models, hyper_of
from runners.cli.output import say
from runners.cli.progress import passing
from runners.count import options as count_options
from runners.workers.any_model import FACTORY, FAST, TRAINER

if TYPE_CHECKING:
    from reports.count.step_peak import StepPeak
    from reports.count.text import ModelCounts
    from results.records.accounts import AccountLaw
    from results.records.calls import CallRecording
    from results.records.counts import FlopCount
    from results.records.operations import Operation

EXACT = "exact"
OWN = "flopledger"
"""The registry's name of the exact count."""

EXPLAINER = "workloads.training.building:reason"


class Uncounted(Exception):
    """A model that could not be counted, with the reason in one line. mistaken: by what the caller asked for."""

    def __init__(self, words: str, mistaken: bool) -> None:
        super().__init__(words)
        self.mistaken = mistaken


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: counted; 1: a model could not be; 2: the caller's mistake; 3: a file could not be written."""
    options = count_options.parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
    check_models(options.models, options)
    if options.parallel is not None:
        from runners.count import parallel as count_parallel

        return count_parallel.run(options)
    _check_serial(options)
    _check_device(options)
    pasted = _pasted(options)
    counters = _counters(options.counters, "--counters") if pasted is None else _counters(pasted, "--explain")
    from measure.counters.harness.isolation import prepare
    from runners.cli import output
    from runners.count import output as count_output

    if options.out is not None:
        output.make(options.out)
    prepare()
    answer: Callable[[str, Namespace, Sequence[str]], Sequence[Any]] = _laws if options.law else _accounts
    tell: Callable[[Sequence[Any], Namespace], None] = count_output.laws if options.law else count_output.accounts
    answers: list[Any] = []
    failed = 0
    for model in options.models:
        try:
            answers += answer(model, options, counters)
        except Uncounted as fault:
            say(f"error: {instructed(str(fault))}")
            failed = max(failed, MISTAKE if fault.mistaken else FAILED)
    if answers:
        tell(answers, options)
    return failed


def _check_serial(options: Namespace) -> None:
    """The batch size that a count has by itself. Raises Mistake for options of `--parallel` without it."""
    if given := count_options.changes(options, count_options.PARALLEL):
        raise Mistake(f"{given[0]}: goes with --parallel only")
    if options.batch_size is None:
        options.batch_size = 1


def _check_device(options: Namespace) -> None:
    """Raises Mistake for a device that the table of peaks has not, and for answers that have no peak in them."""
    if options.device is None:
        return
    if others := count_options.changes(options, ("law", "explain")):
        raise Mistake(f"--device: goes without {others[0]}")
    if options.format == "csv":
        raise Mistake("--device: goes with --format table or json")
    from analysis.devices.device_peak import peak_refusal

    try:
        peak_refusal(options.device)
    except ValueError as fault:
        raise Mistake(f"--device: {fault}") from fault


def _accounts(model: str, options: Namespace, counters: Sequence[str]) -> list[ModelCounts]:
    return count(model, options, counters, (options.batch_size,))


def _laws(model: str, options: Namespace, counters: Sequence[str]) -> list[tuple[str, Sequence[AccountLaw]]]:
    """A model's laws of the batch. Raises Uncounted where it cannot be built or run."""
    from runners.count import batch_law

    try:
        found = batch_law.laws(model, hyper_of(options), counters, options.law_check, options.timeout, passing)
    except (ValueError, Unavailable, RuntimeError) as fault:
        raise Uncounted(_named(model, str(fault)), mistaken=not isinstance(fault, RuntimeError)) from fault
    return [(model, found)]


def _pasted(options: Namespace) -> tuple[str, ...] | None:
    """The counters whose numbers are to be explained, "all" for one without a name; None: none is. Raises Mistake."""
    if options.explain is None:
        return None
    from reports.count.pasted import parse

    if options.law or options.ratios or options.detail:
        raise Mistake("--explain: goes without --law, --ratios and --detail")
    try:
        options.pasted = parse(options.explain)
    except ValueError as fault:
        raise Mistake(f"--explain: {fault}") from fault
    return tuple(dict.fromkeys(each.counter or "all" for each in options.pasted))


def _counters(asked: Sequence[str], option: str) -> tuple[str, ...]:
    """The counters in the registry's order; our own for the exact count. Raises Mistake for a name of none, which
    begins with the option that it came from."""
    from measure.counters.harness.registry import COUNTERS

    for name in asked:
        if name not in (*COUNTERS, EXACT, "all"):
            raise Mistake(f"{option}: {choice_error('counter', name, ('all', EXACT, *COUNTERS))}")
    if "all" in asked:
        return tuple(COUNTERS)
    wanted = {OWN if name == EXACT else name for name in asked}
    return tuple(name for name in COUNTERS if name in wanted)


def count(model: str, options: Namespace, counters: Sequence[str], sizes: Sequence[int]) -> list[ModelCounts]:
    """The account of one model at each batch size. Raises Uncounted where it cannot be built or run."""
    from measure.counters.harness.isolation import count_isolated, record_isolated

    hyper = hyper_of(options)
    needs_operations = options.ratios or options.detail or options.out or options.explain or options.device
    alone = tuple(counters) == (OWN,) and not needs_operations
    if alone and (answers := _exactly(model, hyper, options, sizes)):
        return answers
    passing(f"{model}: recording what it calls")
    found, failure = record_isolated(
        model, hyper, sizes, options.timeout, factory=FACTORY, trainer=TRAINER, explainer=EXPLAINER
    )
    if failure is not None:
        reason = failure.reason.removeprefix("ValueError: ")
        raise Uncounted(_named(model, reason), failure.status in ("invalid", "unavailable"))
    rows: list[FlopCount] = []
    for counter in counters:
        passing(f"{model}: {counter}")
        rows += count_isolated(counter, model, hyper, sizes, options.timeout, factory=FACTORY)
    return [_answer(model, size, found[size], rows, options) for size in sizes]


def _named(model: str, reason: str) -> str:
    """What is said of a model begins with its name, once."""
    return reason if reason.startswith(model) else f"{model}: {reason}"


def _exactly(model: str, hyper: dict[str, Any], options: Namespace, sizes: Sequence[int]) -> list[ModelCounts]:
    """The exact count alone; nothing where it does not have the answer, and the model has to be recorded."""
    from analysis.operators.attention_conventions import AttentionFlop
    from cleaning.accounts.vocabulary.causes import CAUSES
    from measure.counters.harness.isolation import count_isolated
    from reports.count.text import ModelCounts

    passing(f"{model}: counting")
    registry = {EXACT: (FAST, "")}
    rows = count_isolated(EXACT, model, hyper, sizes, options.timeout, factory=FACTORY, registry=registry)
    if any(row.status != "ok" or row.not_understood for row in rows):
        return []
    return [
        ModelCounts(
            model=model,
            batch_size=size,
            parameters=mine[0].parameters,
            exact={row.phase: row.flop for row in mine} | {"optimizer": 0},
            other_flop={},
            not_understood={},
            accounts=(),
            causes=(),
            words=CAUSES,
            notes=(f"note: {mine[0].reason}",) if mine[0].reason else (),
            attention=AttentionFlop.from_rows((row.phase, row.flop, row.attention) for row in mine),
            mixture=mine[0].mixture,
        )
        for size in sizes
        if (mine := [row for row in rows if row.batch_size == size])
    ]


def _answer(
    model: str, size: int, recording: CallRecording, rows: Sequence[FlopCount], options: Namespace
) -> ModelCounts:
    from analysis.operators.attention_conventions import attention_flop
    from analysis.operators.registry import cost, not_understood
    from cleaning.accounts.account.backward_ratio import backward
    from cleaning.accounts.account.reconcile import PHASES, at_least, exact, reconcile, unknown_calls
    from cleaning.accounts.vocabulary.causes import CAUSES
    from reports.count.formulas import step_terms
    from reports.count.text import ModelCounts

    table = recording.training or recording.operations
    accounts, causes = reconcile(model, size, recording, rows)
    phases = {**PHASES, "optimizer": ("optimizer",), "recompute": ("recompute",)}
    unknown = {name: unknown_calls(recording, members) for name, members in phases.items()}
    other: dict[str, int | None] = {
        name: sum(int(cost(operation).other_flop) for operation in table if operation.phase in members)
        for name, members in phases.items()
    }
    is_whole = not any(unknown[phase] for phase in PHASES)
    untrained: dict[str, int | None] = (
        {} if recording.training else {"optimizer": None}
    )  # an evaluation has no such step
    return ModelCounts(
        model=model,
        batch_size=size,
        parameters=recording.parameters,
        exact={name: exact(recording, name, members) for name, members in phases.items()} | untrained,
        other_flop=other | untrained,
        not_understood=not_understood(table),
        accounts=accounts,
        causes=causes,
        words=CAUSES,
        notes=tuple(_notes(recording)),
        backward=backward(model, size, recording.training, accounts)
        if recording.training and not any(unknown.values())
        else None,
        at_least_flop={name: at_least(recording, members) for name, members in phases.items() if name not in untrained},
        unknown_calls=unknown,
        attention=attention_flop(table, recording.mask_rules),
        mixture=recording.mixture,
        peak=None if options.device is None else _peak(options.device, table, is_whole),
        terms=step_terms(recording, size) if options.explain and is_whole else None,
    )


def _peak(device: str, table: Sequence[Operation], is_whole: bool) -> StepPeak:
    """Of the products of forward and backward pass, by dtype."""
    from analysis.operators import registry
    from analysis.utilization.numerators import input_dtype
    from cleaning.accounts.account.reconcile import PHASES
    from reports.count.step_peak import peak_of_step

    phases = {phase for members in PHASES.values() for phase in members}
    flop: Counter[str] = Counter()
    for operation in table:
        if operation.phase in phases:
            flop[input_dtype(operation)] += registry.model_flop(operation)
    return peak_of_step(device, flop, is_whole)


def _notes(recording: CallRecording) -> list[str]:
    notes = [f"note: {recording.note}"] if recording.note else []
    if recording.untrained:
        notes.append(f"note: no training step ({recording.untrained}); exact is of the model in evaluation")
    return notes
