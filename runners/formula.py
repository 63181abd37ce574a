"""`python -m runners.formula MODEL`: the cost of a training step, as formulas in the model's own sizes and the batch.

The command prints the formulas, and evaluates, sweeps and solves them; `formula` returns them from Python as
`StepFormulas`. The formulas are exact. They are fitted to the model's own operation tables at a few points
(`runners/formula_points.py`) and checked at others. Nothing is run on a device, timed or downloaded.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from results.errors import Unavailable
from results.text_files import stated
from runners.cli.arguments import choice_error, names, number
from runners.cli.exits import FAILED, as_mistake, exit_code, guarded
from runners.cli.model_options import MODEL, MODEL_INPUT, RULES, Options, check_models, parser_of
from runners.cli.output import reserve, say, show_answer, show_transient, with_install_hint
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

if TYPE_CHECKING:
    from analysis.formula.expressions import Expr
    from reports.formula import FormulaAnswer

BY = ("phase", "kind", "module", "operation")

BATCH_SIZE = 32
"""Batch size at which values are shown by default."""

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
            "help": "optimizer of the step (sgd; by Catamount's rules that of its model)",
        },
        "--fused": {
            "action": "store_true",
            "help": "count each chain of pointwise operations as one fused operation",
        },
        "precision": {},
    },
    "what to do with them": {
        "--at": {"default": "", "metavar": "NAME=N,…", "help": "sizes at which values are shown (the model's own)"},
        "--by": {"choices": BY, "help": "also show costs by phase, kind, module or operation"},
        "--solve": {
            "action": "append",
            "default": [],
            "metavar": "TEXT",
            "help": "a condition to solve, such as 'kept <= 32 GiB for batch'; may be repeated",
        },
        "--sweep": {
            "default": "",
            "metavar": "NAME=A:B:STEP,…",
            "help": "show values over ranges, one row for each point",
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
    """Run the command. 0: formulas printed; 1: there are none; 2: the caller's mistake; 3: a file was not
    written."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    check_models([options.model], options)
    if options.out is not None:
        reserve(options.out)
    from runners.formula_questions import answer

    try:
        result = answer(options)
    except Unavailable as fault:
        show_transient("")
        say(f"error: {with_install_hint(str(fault))}")
        return FAILED
    show_transient("")
    from reports.formula import document, parts, to_csv
    from reports.shared.layout import page

    show_answer(
        options.format,
        lambda width, colour: page(parts(result), width, colour),
        lambda: document(result),
        lambda: to_csv(result),
        options.out,
    )
    return 0


@dataclass(frozen=True)
class StepFormulas:
    """Formulas of one training step.

    formulas: quantity → sympy expression in the symbols: `parameters`, `model_flop` and `all_flop` (a multiply-add is
    2), `bytes_accessed`, `operational_intensity`, `total_footprint_bytes` and the other footprints (docs/formula.md).
    A quantity is missing where an operation has no rule, or follows no formula. at_least: quantity → expression of the
    operations that have a rule. own_sizes: symbol → the model's own size. checked_at: points at which the count was
    equal to the formula. notes: sentences about what was left out.
    """

    model: str
    formulas: Mapping[str, Expr]
    at_least: Mapping[str, Expr]
    own_sizes: Mapping[str, int]
    checked_at: tuple[Mapping[str, int], ...]
    notes: tuple[str, ...]

    def at(self, **sizes: int) -> dict[str, int | Fraction]:
        """Return quantity → its exact value; symbols that are not given have the model's own sizes.

        Raises ValueError for a name that is not a symbol of the formulas, or a size below 1.
        """
        from analysis.formula.expressions import value

        point = {**self.own_sizes, **sizes}
        return {name: value(formula, point, self.own_sizes) for name, formula in self.formulas.items()}


def formula(
    model: str, symbols: Sequence[str] = (), *, batch_size: int | None = None, optimizer: str = "sgd", **sizes: int
) -> StepFormulas:
    """Return the cost of one training step of `model`, as formulas.

    model: any form that `runners.count` takes: a name of the catalogue, "timm:NAME", "hf:CONFIG" or
    "file.py:function". symbols: the sizes that the formulas keep as symbols (empty: all that the model has); the others
    have the values of `sizes` and `batch_size`, else the model's own.

    Raises ValueError for an unknown model, size or symbol, Unavailable where the step follows no formula, each in one
    line.

    >>> step = formula("synthetic_matmul", ["batch", "width"])
    >>> step.formulas["model_flop"]
    22*batch*width**2
    >>> step.at(batch=8, width=64)["model_flop"]
    720896
    """
    stated()  # raises for invalid limits, for which a parser would end the process
    if optimizer not in OPTIMIZERS:
        raise ValueError(choice_error("optimizer", optimizer, OPTIMIZERS))
    with as_mistake(ArgumentTypeError, about="batch_size: "):
        size = {} if batch_size is None else {"batch_size": number(int, 1)(str(batch_size))}
    result = formula_answer(model, symbols, sizes, optimizer=optimizer, **size)
    formulas = {name: form for name, form in result.totals.items() if form is not None}
    return StepFormulas(model, formulas, result.at_least, dict(result.point), result.checked, result.notes)


def formula_answer(model: str, symbols: Sequence[str], sizes: Mapping[str, int], **settings: object) -> FormulaAnswer:
    """Return the command's answer for a model, without --at, --solve and --sweep. settings: options by name. Raises
    Unavailable for a step that follows no formula, Mistake for an unknown model, size or symbol."""
    from runners.formula_questions import answer

    options = parser().parse_args(["--", model])
    vars(options).update(settings, symbols=tuple(symbols), hyper=dict(sizes))
    check_models([model], options)
    return answer(options)


if __name__ == "__main__":
    sys.exit(exit_code(main))
