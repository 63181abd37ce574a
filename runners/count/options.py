"""The words of `runners.count`'s command line. Nothing is checked here that needs a model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from analysis.parallel.rank_grid import REPLICAS, SCHEDULES
from runners.cli.arguments import Parser, add_format, names, number
from runners.cli.model_options import MODEL, add_model

TIMEOUT_S = 600.0

CHECK = 16
"""Batch at which the law of a counter is checked: on real tensors more takes long and much memory."""

EPILOG = "Models of any form, and their inputs: docs/models.md. What each cause means: docs/counters.md."


PARALLEL = ("plan", "microbatches", "schedule", "replicas")
"""Options that `--parallel` alone has."""


def changes(options: Namespace, names: Iterable[str]) -> list[str]:
    """Those of these options that do not have their default, as they are typed."""
    made = parser()
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != made.get_default(name)]


def parser() -> Parser:
    """The parser of `runners.count`."""
    made = Parser(
        prog="python -m runners.count",
        description="How many FLOPs does this model need, by every counter, and why do they differ?",
        epilog=EPILOG,
    )
    made.add_argument("models", nargs="+", metavar="MODEL", help=MODEL)
    add_model(made, "1; with --parallel dp × pp")
    made.set_defaults(batch_size=None)
    made.add_argument(
        "--counters",
        type=names("counter"),
        default=("all",),
        metavar="NAMES",
        help="all, exact, or names with commas (all)",
    )
    made.add_argument("--detail", action="store_true", help="every cause, by kind of operation and module")
    made.add_argument("--ratios", action="store_true", help="backward ÷ forward, and what 3 × forward misses")
    made.add_argument(
        "--explain",
        metavar="COUNTER=NUMBER,…",
        help="numbers from anywhere, as in fvcore=314M,ptflops=320.2MMac, or formulas (6N, 6N_nonembedding, palm, "
        "megatron, 3x_forward, 6*N*T*B): which they are, and why they are not ours",
    )
    made.add_argument("--law", action="store_true", help="each number as a line in the batch, a·b + c")
    made.add_argument(
        "--law-check", type=number(int, 5), default=CHECK, metavar="N", help=f"the batch that checks it ({CHECK})"
    )
    made.add_argument(
        "--device", metavar="NAME", help="a row of the table of peaks, for what the products of a step are divided by"
    )
    _add_parallel(made)
    add_format(made, "table, csv or json (table)")
    made.add_argument("--out", type=Path, metavar="DIR", help="write accounts.csv, causes.csv and the pictures here")
    made.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of each counter ({TIMEOUT_S:g})"
    )
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _add_parallel(made: Parser) -> None:
    """The options of a step that is split over ranks (docs/parallel.md)."""
    group = made.add_argument_group("a step over many ranks (docs/parallel.md)")
    group.add_argument(
        "--parallel", metavar="dp=N,tp=N,…", help="over dp, tp, pp, cp, ep: each rank's FLOP, memory and collectives"
    )
    group.add_argument(
        "--plan", type=Path, metavar="FILE", help="TOML or JSON: module pattern → style (the model's own)"
    )
    group.add_argument(
        "--microbatches", type=number(int, 1), metavar="N", help="of a replica (1; with pp one for each sample)"
    )
    group.add_argument(
        "--replicas", choices=REPLICAS, default=REPLICAS[0], help="each keeps all weights, or its part (ddp)"
    )
    group.add_argument("--schedule", choices=SCHEDULES, default=SCHEDULES[0], help=f"of a pipeline ({SCHEDULES[0]})")
