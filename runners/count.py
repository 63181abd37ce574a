"""`python -m runners.count MODEL…`: how many FLOP does a model need, by every counter, and why do they differ?

A counter is a tool that counts FLOP, such as fvcore. Each counter runs in a process of its own on the same model and
inputs. A recording of the model's calls gives the exact count. From the same recording and each counter's own rule,
every FLOP of difference gets a cause: a named reason. The counts are printed as a table, CSV or JSON, and `--out`
writes accounts.csv and causes.csv. With `--parallel`, `count_ranks.py` answers instead. Nothing is trained, timed or
downloaded.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.counters import COUNTERS, CounterEntry
from analysis.parallel.rank_grid import REPLICAS, SCHEDULES
from measure.counters.isolation import count_isolated, prepare, record_isolated
from results.errors import Unavailable
from runners.cli.arguments import choice_error, names, number
from runners.cli.exits import FAILED, MISTAKE, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import MODEL, MODEL_INPUT, Options, check_models, hyper_of, parser_of
from runners.cli.output import make_directory, say, show_answer, show_transient, with_install_hint, write_file
from runners.workers.any_model import EXACT, EXACT_COUNTER, FACTORY, OWN, TRAINER

if TYPE_CHECKING:
    from reports.count.answer import ModelCounts
    from results.records.counts import FlopCount

TIMEOUT_S = 600.0

EPILOG = "Models of any form, and their inputs: docs/models.md. What each cause means: docs/counters.md."

PARALLEL = ("plan", "microbatches", "schedule", "replicas")
"""Options that require `--parallel`."""

COUNTER_OPTIONS = ("counters", "detail", "explain", "out", "timeout", "device")
"""Options that exclude `--parallel`."""


OPTIONS: Mapping[str, Options] = {
    "": {
        "models": {"nargs": "+", "metavar": "MODEL", "help": MODEL},
        **MODEL_INPUT,
        "batch-size": {"default": None, "help": "samples in the batch (1; with --parallel dp × pp)"},
        "--counters": {
            "type": names("counter"),
            "default": ("all",),
            "metavar": "NAMES",
            "help": "all, exact, or names with commas (all)",
        },
        "--detail": {"action": "store_true", "help": "list every cause, by kind of operation and module"},
        "--explain": {
            "metavar": "COUNTER=NUMBER,…",
            "help": "numbers from anywhere, as in fvcore=314M,ptflops=320.2MMac, or formulas (6N, 6N_nonembedding, "
            "palm, megatron, 3x_forward): what they count, and why they differ from ours",
        },
        "device": {
            "default": None,
            "metavar": "NAME",
            "help": "a row of the table of peaks: also print the peaks by which a step's products are divided",
        },
        "format": {"help": "table, csv or json (table)"},
        "out": {"help": "write accounts.csv and causes.csv here"},
        "timeout": {"default": TIMEOUT_S, "help": f"seconds for each counter ({TIMEOUT_S:g})"},
    },
    "a step over many ranks (docs/cluster.md)": {
        "--parallel": {
            "metavar": "dp=N,tp=N,…",
            "help": "sizes of the axes dp, tp, pp, ep: show each rank's FLOP, memory and collectives",
        },
        "--plan": {
            "type": Path,
            "metavar": "FILE",
            "help": "TOML or JSON file: module pattern → style (the model's own plan)",
        },
        "--microbatches": {
            "type": number(int, 1),
            "metavar": "N",
            "help": "micro-batches of each replica (1; with pp one for each sample)",
        },
        "--replicas": {
            "choices": REPLICAS,
            "default": REPLICAS[0],
            "help": "each replica keeps all weights (ddp, default), or its part (fsdp)",
        },
        "--schedule": {
            "choices": SCHEDULES,
            "default": SCHEDULES[0],
            "help": f"schedule of a pipeline ({SCHEDULES[0]})",
        },
    },
}

DESCRIPTION = "How many FLOPs does this model need, by every counter, and why do they differ?"

parser = partial(parser_of, "count", DESCRIPTION, OPTIONS, EPILOG)


def changed_options(options: Namespace, names: Iterable[str]) -> list[str]:
    """Return those of these options that do not have their default, as typed."""
    defaults = parser()
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != defaults.get_default(name)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. 0: counted; 1: a model could not be counted; 2: the caller's mistake; 3: a
    file could not be written."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    check_models(options.models, options)
    if options.parallel is not None:
        if changed := changed_options(options, COUNTER_OPTIONS):
            raise Mistake(f"--parallel: cannot be combined with {' and '.join(changed)}")
        from runners import count_ranks

        return count_ranks.run(options)
    counters = _checked(options)
    if options.out is not None:
        make_directory(options.out)
    prepare()
    answers: list[ModelCounts] = []
    code = 0
    for model in options.models:
        try:
            answers += count(model, options, counters)
        except (Mistake, Unavailable) as fault:
            say(f"error: {with_install_hint(str(fault))}")
            code = max(code, MISTAKE if isinstance(fault, Mistake) else FAILED)
    show_transient("")
    if answers:
        show(answers, options)
    return code


def _checked(options: Namespace) -> tuple[str, ...]:
    """Return the requested counters. Fills in the batch size and the numbers to explain. Raises Mistake for options
    that exclude each other, and for an unknown device or counter."""
    if changed := changed_options(options, PARALLEL):
        raise Mistake(f"{changed[0]}: expected --parallel with it")
    options.batch_size = options.batch_size or 1
    if options.device is not None:
        if options.explain is not None:
            raise Mistake("--device: cannot be combined with --explain")
        if options.format == "csv":
            raise Mistake("--device: expected --format table or json with it, got csv")
        from analysis.devices.format_peaks import peak_refusal

        with as_mistake(ValueError, about="--device: "):
            peak_refusal(options.device)
    if options.explain is None:
        return _counters(options.counters, "counters")
    from reports.count.explain import parse

    if options.detail:
        raise Mistake("--explain: cannot be combined with --detail")
    with as_mistake(ValueError, about="--explain: "):
        options.pasted = parse(options.explain)
    return _counters([pasted.counter or "all" for pasted in options.pasted], "explain")


def _counters(names: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the counters in the registry's order; "exact" becomes our own counter. option: the one that the names came
    from, for the message. Raises Mistake for an unknown name."""
    for name in names:
        if name not in (*COUNTERS, EXACT, "all"):
            raise Mistake(f"--{option}: {choice_error('counter', name, ('all', EXACT, *COUNTERS))}")
    wanted = {OWN if name == EXACT else name for name in names}
    return tuple(name for name in COUNTERS if name in wanted or "all" in wanted)


def count(model: str, options: Namespace, counters: Sequence[str], sizes: Sequence[int] = ()) -> list[ModelCounts]:
    """Count one model at each batch size, by default that of the options.

    Raises Mistake, or Unavailable, with the reason in one line where the model cannot be built or run.
    """
    from reports.count.answer import counter_counts, exact_counts

    sizes, hyper = sizes or (options.batch_size,), hyper_of(options)
    needs_operations = options.detail or options.out or options.explain or options.device
    if tuple(counters) == (OWN,) and not needs_operations:
        show_transient(f"{model}: counting")
        exact = {EXACT: CounterEntry(EXACT_COUNTER)}
        rows = count_isolated(EXACT, model, hyper, sizes, options.timeout, factory=FACTORY, registry=exact)
        if all(row.status == "ok" and not row.not_understood for row in rows):  # else the model has to be recorded
            return [exact_counts(model, size, [row for row in rows if row.batch_size == size]) for size in sizes]
    show_transient(f"{model}: recording what it calls")
    recordings, failure = record_isolated(
        model,
        hyper,
        sizes,
        options.timeout,
        factory=FACTORY,
        trainer=TRAINER,
        explainer="workloads.any_model:reason",
    )
    if failure is not None:
        reason = failure.reason.removeprefix("ValueError: ")
        message = reason if reason.startswith(model) else f"{model}: {reason}"
        raise (Mistake if failure.status in ("invalid", "unavailable") else Unavailable)(message)
    every: list[FlopCount] = []
    for counter in counters:
        show_transient(f"{model}: {counter}")
        every += count_isolated(counter, model, hyper, sizes, options.timeout, factory=FACTORY)
    return [counter_counts(model, size, recordings[size], every, options.device) for size in sizes]


def show(answers: Sequence[ModelCounts], options: Namespace) -> None:
    """Show the counts of every model, or the explanation of pasted numbers; write files with --out. Raises
    StoreFault."""
    from reports.count import answer, explain, text
    from reports.shared.layout import csv_of, page, to_csv
    from results.records.answers import Attribution, AttributionCause

    attributions = [attribution for counts in answers for attribution in counts.attributions]
    causes = [cause for counts in answers for cause in counts.causes]
    if options.explain is not None:
        explained = [(counts, explain.explain(counts, number)) for counts in answers for number in options.pasted]
        documents = [{"model": counts.model, **explain.document(number)} for counts, number in explained]
        show_answer(
            options.format,
            lambda width, _: "\n".join(
                page([f"{counts.model}, batch {counts.batch_size}", *explain.to_lines(counts, number)], width)
                for counts, number in explained
            ),
            lambda: documents,
            lambda: csv_of(documents),
        )
    else:
        show_answer(
            options.format,
            lambda width, colour: "\n".join(text.to_text(counts, width, colour, options.detail) for counts in answers),
            lambda: (
                answer.document(answers[0])
                if len(options.models) == 1
                else [answer.document(counts) for counts in answers]
            ),
            lambda: to_csv(causes, AttributionCause) if options.detail else to_csv(attributions, Attribution),
        )
    if options.out is not None:
        write_file(options.out / "accounts.csv", to_csv(attributions, Attribution))
        write_file(options.out / "causes.csv", to_csv(causes, AttributionCause))


if __name__ == "__main__":
    sys.exit(exit_code(main))
