"""`python -m runners.count MODEL…`: how many FLOP a model needs, by every counter, and why they differ.

Each counter runs in a process of its own on the same model and inputs; a recording of what the model calls gives the
exact count and, by each counter's own rule, every FLOP of difference by cause. Nothing is trained, timed or downloaded.
"""

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from analysis.parallel.rank_grid import REPLICAS, SCHEDULES
from measure.counters.harness.isolation import prepare
from runners.cli.arguments import choice_error, names, number
from runners.cli.exits import FAILED, MISTAKE, Mistake, as_mistake, guarded, instructed
from runners.cli.model_options import MODEL, MODEL_INPUT, Options, check_models, parser_of
from runners.cli.output import say
from runners.workers.any_model import EXACT, OWN

TIMEOUT_S = 600.0


EPILOG = "Models of any form, and their inputs: docs/models.md. What each cause means: docs/counters.md."


PARALLEL = ("plan", "microbatches", "schedule", "replicas")
"""Options that `--parallel` alone has."""

ALONE = ("counters", "detail", "explain", "out", "timeout", "device")
"""Options that `--parallel` does not have."""


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
        "--detail": {"action": "store_true", "help": "every cause, by kind of operation and module"},
        "--explain": {
            "metavar": "COUNTER=NUMBER,…",
            "help": "numbers from anywhere, as in fvcore=314M,ptflops=320.2MMac, or formulas (6N, 6N_nonembedding, "
            "palm, megatron, 3x_forward, 6*N*T*B): which they are, and why they are not ours",
        },
        "device": {
            "default": None,
            "metavar": "NAME",
            "help": "a row of the table of peaks, for what the products of a step are divided by",
        },
        "format": {"help": "table, csv or json (table)"},
        "out": {"help": "write accounts.csv, causes.csv and the pictures here"},
        "timeout": {"default": TIMEOUT_S, "help": f"of each counter ({TIMEOUT_S:g})"},
    },
    "a step over many ranks (docs/cluster.md)": {
        "--parallel": {
            "metavar": "dp=N,tp=N,…",
            "help": "over dp, tp, pp, cp, ep: each rank's FLOP, memory and collectives",
        },
        "--plan": {
            "type": Path,
            "metavar": "FILE",
            "help": "TOML or JSON: module pattern → style (the model's own)",
        },
        "--microbatches": {
            "type": number(int, 1),
            "metavar": "N",
            "help": "of a replica (1; with pp one for each sample)",
        },
        "--replicas": {
            "choices": REPLICAS,
            "default": REPLICAS[0],
            "help": "each keeps all weights, or its part (ddp)",
        },
        "--schedule": {"choices": SCHEDULES, "default": SCHEDULES[0], "help": f"of a pipeline ({SCHEDULES[0]})"},
    },
}

DESCRIPTION = "How many FLOPs does this model need, by every counter, and why do they differ?"

parser = partial(parser_of, "count", DESCRIPTION, OPTIONS, EPILOG)


def changes(options: Namespace, names: Iterable[str]) -> list[str]:
    """Those of these options that do not have their default, as they are typed."""
    made = parser()
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != made.get_default(name)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: counted; 1: a model could not be; 2: the caller's mistake; 3: a file could not be written."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


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
    counters = _counters(options.counters, "counters") if pasted is None else _counters(pasted, "explain")
    from runners.cli import output
    from runners.count import output as count_output

    if options.out is not None:
        output.make(options.out)
    prepare()
    answers: list[Any] = []
    failed = 0
    for model in options.models:
        try:
            answers += count_output.count(model, options, counters)
        except count_output.Uncounted as fault:
            say(f"error: {instructed(str(fault))}")
            failed = max(failed, MISTAKE if fault.mistaken else FAILED)
    if answers:
        count_output.accounts(answers, options)
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
    if options.explain is not None:
        raise Mistake("--device: goes without --explain")
    if options.format == "csv":
        raise Mistake("--device: goes with --format table or json")
    from analysis.devices.device_peak import peak_refusal

    with as_mistake(ValueError, about="--device: "):
        peak_refusal(options.device)


def _pasted(options: Namespace) -> tuple[str, ...] | None:
    """The counters whose numbers are to be explained, "all" for one without a name; None: none is. Raises Mistake."""
    if options.explain is None:
        return None
    from reports.count.pasted import parse

    if options.detail:
        raise Mistake("--explain: goes without --detail")
    with as_mistake(ValueError, about="--explain: "):
        options.pasted = parse(options.explain)
    return tuple(dict.fromkeys(each.counter or "all" for each in options.pasted))


def _counters(asked: Sequence[str], option: str) -> tuple[str, ...]:
    """The counters in the registry's order; our own for the exact count. Raises Mistake for a name of none, which
    begins with the option that it came from."""
    from measure.counters.harness.registry import COUNTERS

    for name in asked:
        if name not in (*COUNTERS, EXACT, "all"):
            raise Mistake(f"--{option}: {choice_error('counter', name, ('all', EXACT, *COUNTERS))}")
    if "all" in asked:
        return tuple(COUNTERS)
    wanted = {OWN if name == EXACT else name for name in asked}
    return tuple(name for name in COUNTERS if name in wanted)
