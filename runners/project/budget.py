"""`python -m runners.project --budget "64 GPU-days"`, and `--reach LOSS`: what a budget buys, and what a loss takes.

For a transformer by a law of loss in parameters and tokens (`analysis/project/compute/scaling_laws.py`), for a domain
of `analysis/domains/` or a file like those by its own learning curve; on a device by its peak and the utilization that
published runs predict. With every input that has an interval the answers have one, by Monte Carlo with a fixed seed.
"""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runners.cli import Mistake, Parser, choice_error, guarded, number
from runners.project.machine import add_expenses, add_machine, expenses, machine, positive
from runners.project.output import FLOP, HOURS, add_output, reserve_all, tell

if TYPE_CHECKING:
    from reports.project import BudgetAnswer


TRANSFORMER = "transformer"

EXAMPLES = """examples:
  python -m runners.project --budget "64 GPU-days" --device "NVIDIA H100 80GB HBM3" --domain transformer
  python -m runners.project --budget "1e23 FLOP" --device "NVIDIA H200" --parameters 7e9 --devices 256
  python -m runners.project --reach 2.1 --device "NVIDIA H200" --price 2..3.5
laws, intervals and what is not claimed: docs/compute.md"""


def parser() -> Parser:
    """The parser of both modes."""
    made = Parser(
        prog="python -m runners.project --budget",
        description="What accuracy, model and batch fit a budget, or what budget a loss takes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked = made.add_mutually_exclusive_group(required=True)
    asked.add_argument("--budget", type=budget, metavar="AMOUNT", help='"64 GPU-days", "1500 GPU-hours" or "1e21 FLOP"')
    asked.add_argument("--reach", type=positive, metavar="LOSS", help="nats a token that a transformer is to reach")
    made.add_argument("--domain", default=TRANSFORMER, help="transformer, a domain of ours, or a file (transformer)")
    made.add_argument("--law", help="of a transformer's loss: besiroglu2024 or hoffmann2022 (besiroglu2024)")
    made.add_argument("--parameters", type=positive, metavar="N", help="a size of yours, not the one of least loss")
    made.add_argument("--sequence", type=number(int, 1), default=2048, help="of a transformer (2048)")
    made.add_argument("--vocabulary", type=number(int, 1), default=50_304, help="of a transformer (50304)")
    made.add_argument("--devices", type=number(int, 1), default=8, help="that train it together (8)")
    made.add_argument("--batch", type=number(int, 1), metavar="SEQUENCES", help="a step (up to the critical batch)")
    add_machine(made)
    add_expenses(made)
    add_output(made)
    return made


def budget(text: str) -> tuple[float, str]:
    """A `type=` for "64 GPU-days": (64.0, "GPU-days")."""
    found = re.fullmatch(r"\s*([0-9.eE+_]+)\s*([A-Za-z-]+)\s*", text)
    units = {unit.casefold(): unit for unit in [*HOURS, FLOP]}
    units |= {unit.removesuffix("s"): name for unit, name in units.items()}
    if found is None:
        raise argparse.ArgumentTypeError(f'expected an amount such as "64 GPU-days" or "1e21 FLOP", got {text!r}')
    if found[2].casefold() not in units:
        raise argparse.ArgumentTypeError(choice_error("unit", found[2], [*HOURS, FLOP]))
    return positive(found[1]), units[found[2].casefold()]


def main(arguments: Sequence[str]) -> int:
    """The command."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    from reports.project.budget import to_text

    reserve_all(options)
    found = answer_of(options)
    return tell(
        options,
        lambda width, colour: to_text(found, options.format, options.rows, width, colour),
        found.answers,
        found.swings,
    )


def answer_of(options: Namespace) -> BudgetAnswer:
    """The answers of the options. Raises Mistake."""
    if options.domain == TRANSFORMER:
        from runners.project.budget_transformer import transformer_answer

        options.family = options.family or "language-model"
        return transformer_answer(options, machine(options), expenses(options))
    from runners.project.budget_domain import domain_answer

    for name in ("reach", "law", "parameters", "batch"):
        if getattr(options, name) is not None:
            raise Mistake(f"--{name}: expected with --domain transformer, got {options.domain!r}")
    return domain_answer(options)
