"""A model projected from a file of its learning curve, sizes and target: `python -m runners.project FILE`."""

from __future__ import annotations

from collections.abc import Sequence

from runners import project
from runners.arguments import Parser, add_format


def parser() -> Parser:
    """The parser of a projection."""
    made = Parser(prog="python -m runners.project", description=project.__doc__, epilog=project.modes())
    add_format(made, "table, csv or json (table)")
    return made


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser().parse_args(arguments)
    return 0
