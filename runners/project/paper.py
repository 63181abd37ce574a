"""`python -m runners.project --reproduce PAPER`: a paper's printed results beside what follows from its inputs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from analysis.project.results import PAPERS
from runners.cli.arguments import Parser, add_format
from runners.cli.exits import guarded


def parser() -> Parser:
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


def main(arguments: Sequence[str]) -> int:
    """The command. 0: printed; 2: the caller's mistake; 3: a file was not written."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
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
