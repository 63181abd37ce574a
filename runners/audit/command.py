"""`python -m runners.audit --peaks`: what do other packages' own tables say of a device's peak, beside ours?

Their code is taken from wheels and checkouts in a folder, or from what is installed, and asked in processes of its own.
Exit codes: 0 answered (a package that is absent is a row with the reason); 1 no package was there; 2 the caller's
mistake; 130 Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence

from runners.audit.peaks import add_peaks, answer_peaks
from runners.cli import Parser, add_format, guarded

DESCRIPTION = "What do other packages' own tables say of a device's peak, beside ours?"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    made = parser()
    options = made.parse_args(arguments)
    if not options.peaks:
        made.fail("expected --peaks")
    return guarded(lambda: answer_peaks(options), options.debug)


def parser() -> Parser:
    """The parser of `runners.audit`."""
    made = Parser(
        prog="python -m runners.audit",
        description=DESCRIPTION,
        epilog="What was found with the newest versions: docs/peaks-audit.md.",
    )
    add_peaks(made)
    add_format(made, "table, csv or json (table)")
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made
