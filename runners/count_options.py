"""The words of `runners.count`'s command line, and what of them a model is built with. Nothing is checked here that
needs a model."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from runners.arguments import Parser, add_format, names, number

TIMEOUT_S = 600.0

CHECK = 16
"""Batch at which the law of a counter is checked: on real tensors more takes long and much memory."""

SIZES = ("image_size", "num_classes", "frames", "boxes", "seq")

EPILOG = "Models of any form, and their inputs: docs/models.md. What each cause means: docs/counters.md."


def parser() -> Parser:
    """The parser of `runners.count`."""
    made = Parser(
        prog="python -m runners.count",
        description="How many FLOPs does this model need, by every counter, and why do they differ?",
        epilog=EPILOG,
    )
    positive = number(int, 1)
    made.add_argument("models", nargs="+", metavar="MODEL", help="resnet50, timm:NAME, hf:CONFIG, file.py:function, …")
    made.add_argument("--batch-size", type=positive, default=1, metavar="N", help="samples in the batch (1)")
    made.add_argument("--input", default="", metavar="SHAPE", help="sizes of one sample, as in 3x224x224")
    made.add_argument(
        "--batch", default="", metavar="FILE:FUNCTION", help="what makes the batches of a function's model"
    )
    for name in SIZES:
        made.add_argument(f"--{name.replace('_', '-')}", type=positive, metavar="N", help="where the model has it")
    made.add_argument(
        "--counters",
        type=names("counter"),
        default=("all",),
        metavar="NAMES",
        help="all, exact, or names with commas (all)",
    )
    made.add_argument(
        "--frozen", type=names("parameter"), default=(), metavar="PATTERNS", help="parameters not trained"
    )
    made.add_argument(
        "--checkpoint",
        type=names("module"),
        default=(),
        metavar="PATTERNS",
        help="modules that are calculated again, the outermost",
    )
    made.add_argument("--detail", action="store_true", help="every cause, by kind of operation and module")
    made.add_argument("--ratios", action="store_true", help="backward ÷ forward, and what 3 × forward misses")
    made.add_argument("--law", action="store_true", help="each number as a line in the batch, a·b + c")
    made.add_argument(
        "--law-check", type=number(int, 5), default=CHECK, metavar="N", help=f"the batch that checks it ({CHECK})"
    )
    add_format(made, "table, csv or json (table)")
    made.add_argument("--out", type=Path, metavar="DIR", help="write accounts.csv, causes.csv and the pictures here")
    made.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of each counter ({TIMEOUT_S:g})"
    )
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def hyper_of(options: Namespace) -> dict[str, Any]:
    """What the factory takes beside the model."""
    sizes = {name: value for name in SIZES if (value := getattr(options, name)) is not None}
    words = {name: value for name in ("input", "batch", "frozen", "checkpoint") if (value := getattr(options, name))}
    return {**sizes, **words}
