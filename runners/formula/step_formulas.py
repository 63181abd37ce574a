"""What does a training step of this model cost, as formulas in its sizes? From Python in one call.

`python -m runners.formula` asks the same on the command line, with equations and sweeps beside it. Formulas are
exact between sizes at which the model runs the same operations, and are checked at points that they were not made
from. Nothing is run on a device or timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from results.errors import Unavailable
from results.limits import stated

if TYPE_CHECKING:
    from analysis.formula.algebra.expressions import Expr


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
        """Quantity → its exact value; symbols that are not given have the model's own sizes.

        Raises ValueError for a name that is no symbol of the formulas, or a size below 1.
        """
        from analysis.formula.algebra.evaluate import value

        point = {**self.own_sizes, **sizes}
        return {name: value(formula, point, self.own_sizes) for name, formula in self.formulas.items()}


def formula(
    model: str, symbols: Sequence[str] = (), *, batch_size: int | None = None, optimizer: str = "sgd", **sizes: int
) -> StepFormulas:
    """The cost of one training step of `model`, as formulas.

    model: any form that `runners.count` takes: a name of the catalogue, "timm:NAME", "hf:CONFIG" or
    "file.py:function". symbols: the sizes that the formulas keep as symbols (empty: all that the model has); the others
    have the values of `sizes` and `batch_size`, else the model's own.

    Raises ValueError for a model, size or symbol that there is not, Unavailable where the step follows no formula, each
    in one line.

    >>> found = formula("synthetic_matmul", ["batch", "width"])
    >>> found.formulas["model_flop"]
    22*batch*width**2
    >>> found.at(batch=8, width=64)["model_flop"]
    720896
    """
    from analysis.formula.derivation.sampling import Unfitted
    from runners.cli.arguments import choice_error, number
    from runners.cli.model_options import check_models
    from runners.formula.command import parser
    from runners.formula.points import NotBuilt
    from runners.formula.questions import answer
    from workloads.catalogue.catalogue import OPTIMIZERS

    stated()  # a parser would end the process for limits that cannot be
    if optimizer not in OPTIMIZERS:
        raise ValueError(choice_error("optimizer", optimizer, OPTIMIZERS))
    options = parser().parse_args(["--", model])
    options.symbols, options.hyper, options.optimizer = tuple(symbols), dict(sizes), optimizer
    if batch_size is not None:
        options.batch_size = number(int, 1)(str(batch_size))
    check_models([model], options)
    try:
        found = answer(options)
    except (NotBuilt, Unfitted) as fault:
        raise Unavailable(str(fault)) from fault
    formulas = {name: form for name, form in found.totals.items() if form is not None}
    return StepFormulas(model, formulas, found.at_least, dict(found.point), found.checked, found.notes)
