"""`python -m runners.formula MODEL`: what a training step costs, as formulas in the model's own sizes and the batch.

The formulas come from the model's own operation tables at a few points (`runners/formula/points.py`), are exact, and
are checked at points that they were not made from. They are evaluated, swept and solved. Nothing is run
on a device, timed or downloaded.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial

from results.errors import Unavailable
from runners.cli.arguments import names
from runners.cli.exits import FAILED, Mistake, guarded, instructed
from runners.cli.model_options import MODEL, MODEL_INPUT, RULES, Options, check_models, parser_of
from runners.cli.output import reserve, say, show_answer
from runners.cli.progress import passing
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

BY = ("phase", "kind", "module", "operation")

BATCH_SIZE = 32
"""Batch size of the values where none is said."""

EPILOG = (
    "Symbols are the batch and the sizes that a model is built from: docs/formula.md. Models of any form, and their "
    "inputs: docs/models.md. What the rules of Catamount are: docs/projections.md."
)


OPTIONS: Mapping[str, Options] = {
    "": {
        "model": {"metavar": "MODEL", "help": MODEL},
        "format": {"help": "table, csv or json (table)"},
        "out": {"metavar": "FILE", "help": "write to this file, too"},
    },
    "the model, and values of sizes that are not symbols": {
        **MODEL_INPUT,
        "batch-size": {"default": BATCH_SIZE, "help": f"samples in the batch ({BATCH_SIZE})"},
    },
    "the formulas": {
        "--symbols": {
            "type": names("symbol"),
            "default": (),
            "metavar": "NAMES",
            "help": "batch,image,classes,width, … (all)",
        },
        "rules": {"default": RULES[0]},
        "optimizer": {
            "choices": (*OPTIMIZERS, OWN),
            "default": None,
            "help": "of the step (sgd; of Catamount's models its own)",
        },
        "--fused": {
            "action": "store_true",
            "help": "count each chain of pointwise operations as one fused operation",
        },
        "precision": {},
    },
    "what to do with them": {
        "--at": {"default": "", "metavar": "NAME=N,…", "help": "sizes at which values are shown (the model's own)"},
        "--by": {"choices": BY, "help": "also costs by phase, kind, module or operation"},
        "--solve": {
            "action": "append",
            "default": [],
            "metavar": "TEXT",
            "help": "such as 'kept <= 32 GiB for batch'; may be repeated",
        },
        "--sweep": {
            "default": "",
            "metavar": "NAME=A:B:STEP,…",
            "help": "values over ranges, one row for each point",
        },
        "device": {
            "default": "",
            "metavar": "NAME",
            "help": "a row of the table of peaks, for time and ridge in --solve",
        },
    },
}

DESCRIPTION = "What does this model cost, as a formula in its hyper-parameters?"

parser = partial(parser_of, "formula", DESCRIPTION, OPTIONS, EPILOG)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: formulas printed; 1: there are none; 2: the caller's mistake; 3: a file was not written."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    check_models([options.model], options)
    if options.out is not None:
        reserve(options.out)
    from analysis.formula.algebra.solve import NoSolution
    from analysis.formula.derivation.sampling import Unfitted
    from runners.formula.points import NotBuilt
    from runners.formula.questions import answer

    try:
        found = answer(options)
    except (NotBuilt, Unfitted, Unavailable) as fault:
        if str(fault.__cause__).startswith("--"):
            raise Mistake(str(fault.__cause__)) from fault
        passing("")
        say(f"error: {instructed(str(fault))}")
        return FAILED
    except NoSolution as fault:
        raise Mistake(f"--solve: {fault}") from fault
    passing("")
    from reports.formula import document, parts, to_csv
    from reports.shared.layout import page

    show_answer(
        options.format,
        lambda width, colour: page(parts(found), width, colour),
        lambda: document(found),
        lambda: to_csv(found),
        options.out,
    )
    return 0
