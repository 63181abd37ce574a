"""`python -m runners.project`: what training at the accuracy frontier takes, and on which machine.

It answers several questions, each with a command line of its own; the option that stands for a question chooses it, and
without one a model is projected from a file. `--reproduce PAPER` compares a paper's printed results with what follows
from its inputs. Nothing is trained, timed or downloaded.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from analysis.project.results import PAPERS
from runners.cli.arguments import Parser, add_format
from runners.cli.exits import MISTAKE, guarded
from runners.cli.output import say

MODES = {
    "--reproduce": (
        "runners.project.command:reproduce",
        "a paper's tables and figures, compared with what follows from its inputs",
    ),
    "--compute": ("runners.project.compute:main", "training compute of GPU-hours and back, with an interval"),
}
"""The option that asks → (the command that answers, the question)."""

PROJECTION = "runners.project.model:main"
"""What answers where none of them asks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: printed; 1: it cannot be calculated; 2: the caller's mistake; 3: a file was not written."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = [mode for mode in MODES if any(word == mode or word.startswith(f"{mode}=") for word in given)]
    if len(asked) > 1:
        say(f"error: expected one of {', '.join(MODES)}, got {' and '.join(asked)}")
        return MISTAKE
    module, _, name = (MODES[asked[0]][0] if asked else PROJECTION).partition(":")
    command: Callable[[Sequence[str]], int] = getattr(import_module(module), name)
    return command(given)


def modes() -> str:
    """The other questions, for the end of a help."""
    return "; ".join(f"{option} ({question})" for option, (_, question) in MODES.items())


def reproduction_parser() -> Parser:
    """The parser of a reproduction."""
    made = Parser(
        prog="python -m runners.project",
        description="A paper's tables and figures, compared with what follows from its printed inputs.",
        epilog="What the verdicts mean and what cannot be reproduced: docs/projections.md.",
    )
    made.add_argument("--reproduce", choices=PAPERS, required=True, metavar="PAPER", help=", ".join(PAPERS))
    add_format(made, "table, csv or json (table)")
    made.add_argument("--figures", type=Path, metavar="DIR", help="draw its figures from our numbers, too")
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def reproduce(arguments: Sequence[str]) -> int:
    """The command. 0: printed; 2: the caller's mistake; 3: a file was not written."""
    options = reproduction_parser().parse_args(arguments)
    return guarded(lambda: _reproduced(options), options.debug)


def _reproduced(options: Namespace) -> int:
    from analysis.project.ppopp2019_case_study import reproduced
    from reports.project import paper
    from runners.cli.output import put, reserve, show_page

    if options.figures:
        reserve(options.figures / "figure")
    cells = reproduced()
    if options.figures:
        from reports.project.figures import paper_pictures

        for name, content in paper_pictures().items():
            put(options.figures / name, content)
    forms = {"csv": lambda: paper.to_csv(cells), "json": lambda: paper.to_json(options.reproduce, cells)}
    if options.format in forms:
        print(forms[options.format](), end="")
    else:
        show_page(lambda width, colour: paper.to_text(options.reproduce, cells, width, colour))
    return 0
