"""What `runners.count` finds of each model, on stdout in the format asked for, and as files where `--out` is given.

Data alone is on stdout. The command imports this module after its options were parsed.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.operators import registry
from analysis.operators.attention_conventions import AttentionFlop, attention_flop
from analysis.operators.registry import cost, not_understood
from analysis.utilization.numerators import input_dtype
from cleaning.accounts.account.explain import PHASES, at_least, exact, reconcile, unknown_calls
from cleaning.accounts.vocabulary.items import CAUSES
from measure.counters.harness.isolation import count_isolated, record_isolated
from reports.count import pasted, text, waterfall_figure
from reports.count.references import StepPeak, peak_of_step, step_terms
from reports.count.text import ModelCounts
from reports.shared import figure_style
from reports.shared.layout import csv_of, page, to_csv
from results.records.answers import Account, AccountCause
from results.records.counts import CallRecording, FlopCount, Operation
from runners.cli.model_options import hyper_of
from runners.cli.output import put, show_answer
from runners.cli.progress import passing
from runners.workers.any_model import EXACT, FACTORY, FAST, OWN, TRAINER


def accounts(answers: Sequence[ModelCounts], options: Namespace) -> None:
    """The accounts of every model; with --out tables and pictures, too. Raises StoreFault."""
    passing("")
    account_rows = [account for answer in answers for account in answer.accounts]
    causes = [cause for answer in answers for cause in answer.causes]
    if options.explain is not None:
        _show_explanations(answers, options)
    else:
        show_answer(
            options.format,
            lambda width, colour: "\n".join(text.to_text(answer, width, colour, options.detail) for answer in answers),
            lambda: _single_or_all([text.document(answer) for answer in answers], options),
            lambda: to_csv(causes, AccountCause) if options.detail else to_csv(account_rows, Account),
        )
    if options.out is not None:
        write(options.out, account_rows, causes)


def _show_explanations(answers: Sequence[ModelCounts], options: Namespace) -> None:
    """Each number that was pasted, for each model."""
    found = [(answer, pasted.explain(answer, number)) for answer in answers for number in options.pasted]
    documents = [{"model": answer.model, **pasted.document(explained)} for answer, explained in found]
    show_answer(
        options.format,
        lambda width, _: "\n".join(
            page([f"{answer.model}, batch {answer.batch_size}", *pasted.to_lines(answer, explained)], width)
            for answer, explained in found
        ),
        lambda: documents,
        lambda: csv_of(documents),
    )


def _single_or_all(documents: Sequence[Any], options: Namespace) -> Any:
    """One document; of several models an array."""
    return documents[0] if len(options.models) == 1 else documents


def write(out: Path, accounts: Sequence[Account], causes: Sequence[AccountCause]) -> None:
    """accounts.csv, causes.csv; a waterfall of each model and pass, PNG and SVG. Raises StoreFault."""
    tables = {"accounts": to_csv(accounts, Account), "causes": to_csv(causes, AccountCause)}
    for name, rows in tables.items():
        put(out / f"{name}.csv", rows)
    for name, content in figure_style.render_all(lambda: waterfall_figure.waterfalls(accounts, causes)).items():
        put(out / name, content)


EXPLAINER = "workloads.training.building:reason"


class Uncounted(Exception):
    """A model that could not be counted, with the reason in one line. mistaken: by what the caller asked for."""

    def __init__(self, words: str, mistaken: bool) -> None:
        super().__init__(words)
        self.mistaken = mistaken


def count(model: str, options: Namespace, counters: Sequence[str], sizes: Sequence[int] = ()) -> list[ModelCounts]:
    """The account of one model at each batch size, that of the options where none is given. Raises Uncounted where it
    cannot be built or run."""
    sizes = sizes or (options.batch_size,)
    hyper = hyper_of(options)
    needs_operations = options.detail or options.out or options.explain or options.device
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
        at_least_flop={name: at_least(recording, members) for name, members in phases.items() if name not in untrained},
        unknown_calls=unknown,
        attention=attention_flop(table, recording.mask_rules),
        mixture=recording.mixture,
        peak=None if options.device is None else _peak(options.device, table, is_whole),
        terms=step_terms(recording, size) if options.explain and is_whole else None,
    )


def _peak(device: str, table: Sequence[Operation], is_whole: bool) -> StepPeak:
    """Of the products of forward and backward pass, by dtype."""
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
