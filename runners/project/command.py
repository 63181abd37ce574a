"""`python -m runners.project`: what training at the accuracy frontier takes, and on which machine.

It answers several questions, each with a command line of its own; the option that stands for a question chooses it, and
without one a model is projected from a file. Nothing is trained, timed or downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from runners.cli.exits import MISTAKE
from runners.cli.output import say

MODES = {
    "--reproduce": (
        "runners.project.paper:main",
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
