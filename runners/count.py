"""`python -m runners.count MODEL…`: how many FLOP a model needs, by every counter, and why they differ.

Each counter runs in a process of its own on the same model and inputs; a recording of what the model calls gives the
exact count and, by each counter's own rule, every FLOP of difference by cause. Nothing is trained, timed or downloaded.
"""

from __future__ import annotations

import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import StoreFault, Unavailable
from runners.arguments import MISTAKE, Parser, choice_error, exit_code, names, number

if TYPE_CHECKING:
    from reports.accounts import Counted
    from results.accounts import AccountLaw
    from results.calls import Recording
    from results.records import FlopCount

FORMATS = ("table", "csv", "json")

EXACT = "exact"
OWN = "flopledger"
"""The registry's name of the exact count."""

FAILED = 1
"""Exit code where a model could not be counted."""

UNWRITABLE = 3
INTERRUPTED = 130

TIMEOUT_S = 600.0

CHECK = 16
"""Batch at which the law of a counter is checked: on real tensors more takes long and much memory."""

FAST = "runners.counted:exact"
FACTORY, TRAINER, EXPLAINER = "runners.counted:get", "runners.counted:training", "workloads.fit:reason"

SIZES = ("image_size", "num_classes", "frames", "boxes", "seq")

EPILOG = "Models of any form, and their inputs: docs/models.md. What each cause means: docs/counters.md."


class Uncounted(Exception):
    """A model that could not be counted, with the reason in one line. mistaken: by what the caller asked for."""

    def __init__(self, words: str, mistaken: bool) -> None:
        super().__init__(words)
        self.mistaken = mistaken


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: counted; 1: a model could not be; 2: the caller's mistake; 3: a file could not be written."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _run(parser, options)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED
    except StoreFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return UNWRITABLE
    except BrokenPipeError:
        raise
    except Exception as fault:
        if options.debug:
            raise
        words = " ".join(str(fault).split())
        print(f"error: {type(fault).__name__}: {words} (--debug tells where)", file=sys.stderr)
        return FAILED


def _run(parser: Parser, options: Namespace) -> int:
    _check(parser, options)
    counters = _counters(parser, options.counters)
    from measure.counters.isolate import prepare
    from runners import account_files, law

    if options.out is not None:
        account_files.make(options.out)
    prepare()
    answer, tell = (_laws, law.tell) if options.law else (_accounts, _tell)
    answers, failed = [], 0
    for model in options.models:
        try:
            answers += answer(model, options, counters)
        except Uncounted as fault:
            print(f"error: {fault}", file=sys.stderr)
            failed = max(failed, MISTAKE if fault.mistaken else FAILED)
    if answers:
        tell(answers, options)
    return failed


def _accounts(model: str, options: Namespace, counters: Sequence[str]) -> list[Counted]:
    return count(model, options, counters, (options.batch_size,))


def _tell(answers: Sequence[Counted], options: Namespace) -> None:
    """Data on stdout, and files where they were asked for. Raises StoreFault."""
    show(answers, options)
    if options.out is not None:
        write(answers, options.out)


def _laws(model: str, options: Namespace, counters: Sequence[str]) -> list[tuple[str, Sequence[AccountLaw]]]:
    """A model's laws of the batch. Raises Uncounted where it cannot be built or run."""
    from runners import law

    try:
        found = law.laws(
            model, _hyper(options), counters, options.law_check, options.timeout, lambda words: _say(options, words)
        )
    except (ValueError, Unavailable, RuntimeError) as fault:
        raise Uncounted(_named(model, str(fault)), mistaken=not isinstance(fault, RuntimeError)) from fault
    return [(model, found)]


def _check(parser: Parser, options: Namespace) -> None:
    """Ends the command where a model or an input cannot be what it says, before anything is imported that is slow."""
    from workloads.shapes import parse_shapes
    from workloads.specs import check

    try:
        for model in options.models:
            check(model)
        if options.batch:
            check(options.batch)
        if options.input:
            parse_shapes(options.input)
    except (ValueError, Unavailable) as fault:
        if options.debug:
            traceback.print_exc()
        parser.fail(str(fault))


def _counters(parser: Parser, asked: Sequence[str]) -> tuple[str, ...]:
    """The counters in the registry's order; none besides the recording for the exact count alone."""
    from measure.counters.registry import COUNTERS

    for name in asked:
        if name not in (*COUNTERS, EXACT, "all"):
            parser.fail(f"--counters: {choice_error('counter', name, ('all', EXACT, *COUNTERS))}")
    if "all" in asked:
        return tuple(COUNTERS)
    wanted = {OWN if name == EXACT else name for name in asked}
    return tuple(name for name in COUNTERS if name in wanted)


def count(model: str, options: Namespace, counters: Sequence[str], sizes: Sequence[int]) -> list[Counted]:
    """The account of one model at each batch size. Raises Uncounted where it cannot be built or run."""
    from measure.counters.isolate import count_isolated, record_isolated

    hyper = _hyper(options)
    alone = tuple(counters) == (OWN,) and not (options.ratios or options.detail or options.out)  # these need operations
    if alone and (answers := _exactly(model, hyper, options, sizes)):
        return answers
    _say(options, f"{model}: recording what it calls")
    found, failure = record_isolated(
        model, hyper, sizes, options.timeout, factory=FACTORY, trainer=TRAINER, explainer=EXPLAINER
    )
    if failure is not None:
        reason = failure.reason.removeprefix("ValueError: ")
        raise Uncounted(_named(model, reason), failure.status in ("invalid", "unavailable"))
    rows: list[FlopCount] = []
    for counter in counters:
        _say(options, f"{model}: {counter}")
        rows += count_isolated(counter, model, hyper, sizes, options.timeout, factory=FACTORY)
    return [_answer(model, size, found[size], rows) for size in sizes]


def _named(model: str, reason: str) -> str:
    """What is said of a model begins with its name, once."""
    return reason if reason.startswith(model) else f"{model}: {reason}"


def _exactly(model: str, hyper: dict[str, Any], options: Namespace, sizes: Sequence[int]) -> list[Counted]:
    """The fast count alone; nothing where it does not have the answer, and the model has to be recorded."""
    from cleaning.accounts.causes import CAUSES
    from measure.counters.isolate import count_isolated
    from reports.accounts import Counted

    _say(options, f"{model}: counting")
    registry = {EXACT: (FAST, "")}
    rows = count_isolated(EXACT, model, hyper, sizes, options.timeout, factory=FACTORY, registry=registry)
    if any(row.status != "ok" for row in rows):
        return []
    return [
        Counted(
            model=model,
            batch_size=size,
            parameters=mine[0].parameters,
            exact={row.phase: row.flop or 0 for row in mine} | {"optimizer": 0},
            other_flop={},
            not_understood=dict(mine[0].not_understood),
            accounts=(),
            causes=(),
            words=CAUSES,
            notes=(f"note: {mine[0].reason}",) if mine[0].reason else (),
        )
        for size in sizes
        if (mine := [row for row in rows if row.batch_size == size])
    ]


def _hyper(options: Namespace) -> dict[str, Any]:
    """What the factory takes beside the model."""
    sizes = {name: value for name in SIZES if (value := getattr(options, name)) is not None}
    words = {name: value for name in ("input", "batch", "frozen", "checkpoint") if (value := getattr(options, name))}
    return {**sizes, **words}


def _answer(model: str, size: int, recording: Recording, rows: Sequence[FlopCount]) -> Counted:
    from analysis.kinds import cost, not_understood
    from cleaning.accounts.backward import backward
    from cleaning.accounts.causes import CAUSES
    from cleaning.accounts.reconcile import PHASES, exact, reconcile
    from reports.accounts import Counted

    table = recording.training or recording.operations
    accounts, causes = reconcile(model, size, recording, rows)
    phases = {**PHASES, "optimizer": ("optimizer",), "recompute": ("recompute",)}
    return Counted(
        model=model,
        batch_size=size,
        parameters=recording.parameters,
        exact={name: exact(recording, name, members) for name, members in phases.items()},
        other_flop={
            name: sum(int(cost(operation).other_flop) for operation in table if operation.phase in members)
            for name, members in phases.items()
        },
        not_understood=not_understood(table),
        accounts=accounts,
        causes=causes,
        words=CAUSES,
        notes=tuple(_notes(recording)),
        backward=backward(model, size, recording.training, accounts) if recording.training else None,
    )


def _notes(recording: Recording) -> list[str]:
    notes = [f"note: {recording.note}"] if recording.note else []
    if recording.untrained:
        notes.append(f"note: no training step ({recording.untrained}); exact is of the model in evaluation")
    return notes


def _say(options: Namespace, words: str) -> None:
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def show(answers: Sequence[Counted], options: Namespace) -> None:
    """Data on stdout."""
    import json

    from reports.accounts import document, to_text
    from reports.tables import to_csv
    from results.accounts import Account, AccountCause, AccountRatio

    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if options.format == "json":
        documents = [document(answer) for answer in answers]
        print(json.dumps(documents[0] if len(options.models) == 1 else documents, indent=1, allow_nan=False))
    elif options.format == "csv" and options.ratios:
        rows = [row for answer in answers if answer.backward for row in answer.backward.ratios]
        print(to_csv(rows, AccountRatio), end="")
    elif options.format == "csv" and options.detail:
        print(to_csv([cause for answer in answers for cause in answer.causes], AccountCause), end="")
    elif options.format == "csv":
        print(to_csv([account for answer in answers for account in answer.accounts], Account), end="")
    else:
        colour = sys.stdout.isatty()
        texts = (to_text(each, colour=colour, detail=options.detail, ratios=options.ratios) for each in answers)
        print("\n".join(texts), end="")


def write(answers: Sequence[Counted], out: Path) -> None:
    """Tables and pictures of all answers, in a directory. Raises StoreFault."""
    from runners import account_files

    accounts = [account for answer in answers for account in answer.accounts]
    causes = [cause for answer in answers for cause in answer.causes]
    ratios = [row for answer in answers if answer.backward for row in answer.backward.ratios]
    account_files.write(out, accounts, causes, ratios)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m runners.count",
        description="How many FLOPs does this model need, by every counter, and why do they differ?",
        epilog=EPILOG,
    )
    positive = number(int, 1)
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="resnet50, timm:NAME, hf:CONFIG, file.py:function, …"
    )
    parser.add_argument("--batch-size", type=positive, default=1, metavar="N", help="samples in the batch (1)")
    parser.add_argument("--input", default="", metavar="SHAPE", help="sizes of one sample, as in 3x224x224")
    parser.add_argument(
        "--batch", default="", metavar="FILE:FUNCTION", help="what makes the batches of a function's model"
    )
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=positive, metavar="N", help="where the model has it")
    parser.add_argument(
        "--counters",
        type=names("counter"),
        default=("all",),
        metavar="NAMES",
        help="all, exact, or names with commas (all)",
    )
    parser.add_argument(
        "--frozen", type=names("parameter"), default=(), metavar="PATTERNS", help="parameters not trained"
    )
    parser.add_argument(
        "--checkpoint",
        type=names("module"),
        default=(),
        metavar="PATTERNS",
        help="modules that are calculated again, the outermost",
    )
    parser.add_argument("--detail", action="store_true", help="every cause, by kind of operation and module")
    parser.add_argument("--ratios", action="store_true", help="backward ÷ forward, and what 3 × forward misses")
    parser.add_argument("--law", action="store_true", help="each number as a line in the batch, a·b + c")
    parser.add_argument(
        "--law-check", type=number(int, 5), default=CHECK, metavar="N", help=f"the batch that checks it ({CHECK})"
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="table, csv or json (table)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write accounts.csv, causes.csv and the pictures here")
    parser.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of each counter ({TIMEOUT_S:g})"
    )
    parser.add_argument("--debug", action="store_true", help="tracebacks")
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main))
