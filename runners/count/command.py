"""`python -m runners.count MODEL…`: how many FLOP a model needs, by every counter, and why they differ.

Each counter runs in a process of its own on the same model and inputs; a recording of what the model calls gives the
exact count and, by each counter's own rule, every FLOP of difference by cause. Nothing is trained, timed or downloaded.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.parallel.rank_grid import REPLICAS, SCHEDULES
from results.errors import Unavailable
from runners.cli.arguments import Parser, add_format, choice_error, names, number
from runners.cli.exits import FAILED, MISTAKE, Mistake, guarded, instructed
from runners.cli.model_options import MODEL, add_model, check_models, hyper_of
from runners.cli.output import say
from runners.cli.progress import passing
from runners.workers.any_model import FACTORY, FAST, TRAINER

if TYPE_CHECKING:
    from reports.count.references import StepPeak
    from reports.count.text import ModelCounts
    from results.records.accounts import AccountLaw
    from results.records.calls import CallRecording
    from results.records.counts import FlopCount
    from results.records.operations import Operation


TIMEOUT_S = 600.0

CHECK = 16
"""Batch at which the law of a counter is checked: on real tensors more takes long and much memory."""

EPILOG = "Models of any form, and their inputs: docs/models.md. What each cause means: docs/counters.md."


PARALLEL = ("plan", "microbatches", "schedule", "replicas")
"""Options that `--parallel` alone has."""

ALONE = ("counters", "law", "law_check", "ratios", "detail", "explain", "out", "timeout", "device")
"""Options that `--parallel` does not have."""


def changes(options: Namespace, names: Iterable[str]) -> list[str]:
    """Those of these options that do not have their default, as they are typed."""
    made = parser()
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != made.get_default(name)]


def parser() -> Parser:
    """The parser of `runners.count`."""
    made = Parser(
        prog="python -m runners.count",
        description="How many FLOPs does this model need, by every counter, and why do they differ?",
        epilog=EPILOG,
    )
    made.add_argument("models", nargs="+", metavar="MODEL", help=MODEL)
    add_model(made, "1; with --parallel dp × pp")
    made.set_defaults(batch_size=None)
    made.add_argument(
        "--counters",
        type=names("counter"),
        default=("all",),
        metavar="NAMES",
        help="all, exact, or names with commas (all)",
    )
    made.add_argument("--detail", action="store_true", help="every cause, by kind of operation and module")
    made.add_argument("--ratios", action="store_true", help="backward ÷ forward, and what 3 × forward misses")
    made.add_argument(
        "--explain",
        metavar="COUNTER=NUMBER,…",
        help="numbers from anywhere, as in fvcore=314M,ptflops=320.2MMac, or formulas (6N, 6N_nonembedding, palm, "
        "megatron, 3x_forward, 6*N*T*B): which they are, and why they are not ours",
    )
    made.add_argument("--law", action="store_true", help="each number as a line in the batch, a·b + c")
    made.add_argument(
        "--law-check", type=number(int, 5), default=CHECK, metavar="N", help=f"the batch that checks it ({CHECK})"
    )
    made.add_argument(
        "--device", metavar="NAME", help="a row of the table of peaks, for what the products of a step are divided by"
    )
    _add_parallel(made)
    add_format(made, "table, csv or json (table)")
    made.add_argument("--out", type=Path, metavar="DIR", help="write accounts.csv, causes.csv and the pictures here")
    made.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of each counter ({TIMEOUT_S:g})"
    )
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _add_parallel(made: Parser) -> None:
    """The options of a step that is split over ranks (docs/cluster.md)."""
    group = made.add_argument_group("a step over many ranks (docs/cluster.md)")
    group.add_argument(
        "--parallel", metavar="dp=N,tp=N,…", help="over dp, tp, pp, cp, ep: each rank's FLOP, memory and collectives"
    )
    group.add_argument(
        "--plan", type=Path, metavar="FILE", help="TOML or JSON: module pattern → style (the model's own)"
    )
    group.add_argument(
        "--microbatches", type=number(int, 1), metavar="N", help="of a replica (1; with pp one for each sample)"
    )
    group.add_argument(
        "--replicas", choices=REPLICAS, default=REPLICAS[0], help="each keeps all weights, or its part (ddp)"
    )
    group.add_argument("--schedule", choices=SCHEDULES, default=SCHEDULES[0], help=f"of a pipeline ({SCHEDULES[0]})")


BATCHES = (1, 2, 4)
"""That the line is drawn through."""

EXACT_CHECK = 32
"""At which the exact one is checked: fake tensors need no memory."""

FAULTS: Mapping[str, type[Exception]] = {"unavailable": Unavailable, "invalid": ValueError}
"""Status of a process that gave nothing → what is raised."""


def batch_laws(
    model: str,
    hyper: Mapping[str, Any],
    counters: Sequence[str],
    check: int,
    timeout_s: float,
    say: Callable[[str], None],
) -> list[AccountLaw]:
    """The laws of one model, the exact count's first. say: progress.

    Raises ValueError for a model that cannot be built, Unavailable where it needs what is not here, RuntimeError where
    its process died or ran past its limit.
    """
    from cleaning.accounts.account.batch_law import counter_laws, exact_laws
    from measure.counters.harness.isolation import count_isolated, record_isolated

    sizes = (*BATCHES, EXACT_CHECK)
    say(f"{model}: tracing at {', '.join(map(str, sizes))}")
    traced, failure = record_isolated(
        model, hyper, sizes, timeout_s, factory=FACTORY, trainer=TRAINER, only_training=True
    )
    if not traced and failure is not None:
        raise FAULTS.get(failure.status, RuntimeError)(failure.reason.removeprefix("ValueError: "))
    found = exact_laws(model, traced, sizes)
    for counter in counters:
        say(f"{model}: {counter}")
        asked = tuple(sorted({*BATCHES, check}))
        found += counter_laws(model, count_isolated(counter, model, hyper, asked, timeout_s, factory=FACTORY))
    return found


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
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
    check_models(options.models, options)
    if options.parallel is not None:
        if given := changes(options, ALONE):
            raise Mistake(f"--parallel: goes without {' and '.join(given)}")
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
    if given := changes(options, PARALLEL):
        raise Mistake(f"{given[0]}: goes with --parallel only")
    if options.batch_size is None:
        options.batch_size = 1


def _check_device(options: Namespace) -> None:
    """Raises Mistake for a device that the table of peaks has not, and for answers that have no peak in them."""
    if options.device is None:
        return
    if others := changes(options, ("law", "explain")):
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

    try:
        found = batch_laws(model, hyper_of(options), counters, options.law_check, options.timeout, passing)
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
    from reports.count.references import step_terms
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
    from reports.count.references import peak_of_step

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
