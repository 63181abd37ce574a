"""The words of `runners.audit`'s command line. Nothing is checked here that needs a package."""

from __future__ import annotations

from pathlib import Path

from runners.audit.peaks import PACKAGES, add_peaks
from runners.cli import Parser, add_format, names, number

TOKENS = 4096

TIMEOUT_S = 3600.0


def parser() -> Parser:
    """The parser of `runners.audit`."""
    made = Parser(
        prog="python -m runners.audit",
        description="What would each framework say of a model's FLOP and of a device's peak, and why is it off?",
        epilog="Causes, and the matrix of all frameworks: docs/mfu-audit.md; of peaks: docs/peaks-audit.md.",
    )
    made.add_argument(
        "models", nargs="*", metavar="MODEL", help="by name, as qwen3-30b-a3b, or hf:CONFIG, a config.json of your own"
    )
    made.add_argument("--suite", choices=("audit",), help="all configurations")
    made.add_argument(
        "--frameworks", type=names("framework"), default=("all",), metavar="NAMES", help="with commas (all)"
    )
    made.add_argument(
        "--tokens",
        type=number(int, 1),
        default=TOKENS,
        metavar="N",
        help=f"of one sequence ({TOKENS}); of a model with fewer positions, in a suite, as many as it has",
    )
    made.add_argument(
        "--formulas",
        type=Path,
        default=PACKAGES,
        metavar="DIR",
        help="a folder for each framework with its package and nothing else (~/.cache/flopledger/audit)",
    )
    made.add_argument(
        "--install", action="store_true", help="put the packages there by pip, without dependencies, first"
    )
    made.add_argument("--page", type=Path, metavar="FILE", help="write docs/mfu-audit.md to this file; needs --suite")
    add_format(made, "table, csv or json (table)")
    made.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of each framework ({TIMEOUT_S:g})"
    )
    add_peaks(made)
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made
