"""`python -m runners.project --parallel --run RUN`: steps of a sweep on several ranks, predicted beside measured.

What each rank ran and handed over is the run's; times are by its ceilings, and by the rates of `--links` or the
datasheet's links (`analysis/project/parallelism/swept.py`). Nothing is run.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from runners.cli import FAILED, Mistake, Parser, add_format, guarded, show_page

RUN = "--run"


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether a command line is this one's."""
    return any(word == RUN or word.startswith(f"{RUN}=") for word in arguments)


def main(arguments: Sequence[str]) -> int:
    """The command. 0: at least one step has a prediction; 1: none has; 2: the caller's mistake."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def parser() -> Parser:
    """The parser of this mode."""
    made = Parser(
        prog="python -m runners.project --parallel --run",
        description="Steps that a sweep trained on several ranks, predicted beside measured.",
        epilog="what is predicted and what is not: docs/cluster.md",
    )
    made.add_argument("--parallel", action="store_true", help=argparse.SUPPRESS)
    made.add_argument(RUN, type=Path, required=True, metavar="RUN", help="of runners.sweep --parallel")
    made.add_argument(
        "--links", type=Path, metavar="DIR", help="of runners.ceiling --collectives --out DIR (the datasheet's links)"
    )
    add_format(made)
    return made


def _run(options: Namespace) -> int:
    from analysis.project.parallelism import PredictedStep, predicted_steps
    from cleaning.reconcile import build
    from reports.project import swept_text
    from reports.sweep.answer import to_csv, to_json
    from results import Inconsistent
    from results.records import RankCollective, RankRow
    from results.store import read_operation_table, read_profile
    from runners.report.links import read_ranks_run, read_rates

    rates = () if options.links is None else read_rates(options.links)
    data = read_ranks_run(options.run)
    try:
        built = build(data, partial(read_operation_table, options.run), partial(read_profile, options.run))
        rows = predicted_steps(
            data.runs, built.parallel_steps, data.records(RankRow), data.records(RankCollective), rates
        )
    except (ValueError, Inconsistent, OSError) as fault:
        raise Mistake(str(fault)) from fault
    if options.format == "csv":
        print(to_csv(rows, PredictedStep), end="")
    elif options.format == "json":
        print(to_json(rows), end="")
    else:
        show_page(lambda width, colour: swept_text(rows, width, colour))
    return 0 if any(row.step_s is not None for row in rows) else FAILED
