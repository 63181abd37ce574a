"""`python -m runners` lists the commands, each with the question it answers; `python -m runners NAME …` runs one.

Where the project is installed, `flopledger NAME …` does the same. Names and options are completed in bash and zsh by
`eval "$(register-python-argcomplete flopledger)"`.
"""

import os
import runpy
import sys
from collections.abc import Sequence

from reports.shared.layout import HangingIndent, page
from runners.cli.arguments import Parser, choice_error
from runners.cli.exits import exit_code
from runners.cli.output import show_page

COMMANDS = {
    "sweep": "What utilization does training reach here, over models × batch sizes × precisions?",
    "count": "How many FLOPs does this model need, by every counter, and why do they differ?",
    "profile": "Where inside the model do time, FLOPs, bytes and parameters go, and what bounds each part?",
    "trace": "What does this recorded profile say once double counts and gaps are cleaned?",
    "formula": "What does this model cost, as a formula in its hyper-parameters?",
    "footprint": "How much memory does a step need, what fills it, and what is the largest batch that fits?",
    "reach": "What could a step take at best on a device that you do not have, and what will it take?",
    "project": "What will training at the accuracy frontier take, and on which machine?",
    "characterize": "How do workloads differ: operation mix, similarity, training against inference, parallelism?",
    "ceiling": "What can this device really do: matmul, convolution, copy?",
    "report": "Rebuild every table and figure of a run, or compare runs",
    "doctor": "Is this machine fit to measure on, and which counters, permissions and telemetry does it have?",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments begin with, or print the list of commands. Return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(
        prog="python -m runners",
        usage="python -m runners [NAME ...]",
        description="Lists the commands, or runs one: python -m runners NAME is python -m runners.NAME.",
    )
    names = parser.add_argument("name", nargs="?", metavar="NAME", help="the command to run")
    names.completer = lambda **_: list(COMMANDS)  # type: ignore[attr-defined]
    if given and given[0] in COMMANDS:
        return _run(given[0], given[1:])
    name = parser.parse_args(given).name
    if name is not None:
        parser.fail(choice_error("command", name, COMMANDS))
    parts = ["Run a command as  python -m runners.NAME  and ask it with  --help", ""]
    listed = [HangingIndent(f"  {command}", question, 16) for command, question in COMMANDS.items()]
    show_page(lambda width, colour: page([*parts, *listed], width, colour))
    return 0


def _run(name: str, arguments: list[str]) -> int:
    """Run the command as if its own module had been started. Ends the process where that ends it."""
    sys.argv = [sys.argv[0], *arguments]
    runpy.run_module(f"{__package__}.{name}", run_name="__main__")
    return 0


def console() -> None:
    """Run `flopledger`, as an installed program."""
    completing = os.environ.get("COMP_LINE", "").split()
    if "_ARGCOMPLETE" in os.environ and len(completing) > 1 and completing[1] in COMMANDS:
        os.environ["_ARGCOMPLETE"] = "2"  # how many words stand before the command's own: `flopledger NAME`
        _run(completing[1], [])
    sys.exit(exit_code(main))


if __name__ == "__main__":
    sys.exit(exit_code(main))
