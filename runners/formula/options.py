"""The words of `runners.formula`'s command line. Nothing is checked here that needs a model."""

from __future__ import annotations

from pathlib import Path

from analysis.devices.precisions import PRECISIONS
from runners.cli.arguments import Parser, add_format, names
from runners.cli.model_options import MODEL, add_model
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

RULES = ("flopledger", "catamount")
BY = ("phase", "kind", "module", "operation")

BATCH_SIZE = 32
"""Of the values, where it is not said."""

EPILOG = (
    "Symbols are the batch and the sizes that a model is built from: docs/formula.md. Models of any form, and their "
    "inputs: docs/models.md. What the rules of Catamount are: docs/projections.md."
)


def parser() -> Parser:
    """The parser of `runners.formula`."""
    made = Parser(
        prog="python -m runners.formula",
        description="What does this model cost, as a formula in its hyper-parameters?",
        epilog=EPILOG,
    )
    made.add_argument("model", metavar="MODEL", help=MODEL)
    add_model(made.add_argument_group("the model, and values of sizes that are not symbols"))
    group = made.add_argument_group("the formulas")
    group.add_argument(
        "--symbols", type=names("symbol"), default=(), metavar="NAMES", help="batch,image,classes,width, … (all)"
    )
    group.add_argument("--rules", choices=RULES, default=RULES[0], help="counting rules (flopledger)")
    group.add_argument(
        "--optimizer", choices=(*OPTIMIZERS, OWN), help="of the step (sgd; of Catamount's models its own)"
    )
    group.add_argument(
        "--fused", action="store_true", help="count each chain of pointwise operations as one fused operation"
    )
    group.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of the step (fp32)")
    _add_questions(made.add_argument_group("what to do with them"))
    made.set_defaults(batch_size=BATCH_SIZE)
    add_format(made, "table, csv or json (table)")
    made.add_argument("--out", type=Path, metavar="FILE", help="write to this file, too")
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _add_questions(group: Parser | object) -> None:
    add = group.add_argument  # type: ignore[union-attr]
    add("--at", default="", metavar="NAME=N,…", help="sizes at which values are shown (the model's own)")
    add("--by", choices=BY, help="also costs by phase, kind, module or operation")
    add(
        "--solve",
        action="append",
        default=[],
        metavar="TEXT",
        help="such as 'kept <= 32 GiB for batch'; may be repeated",
    )
    add("--sweep", default="", metavar="NAME=A:B:STEP,…", help="values over ranges, one row for each point")
    add("--device", default="", metavar="NAME", help="a row of the table of peaks, for time and ridge in --solve")
