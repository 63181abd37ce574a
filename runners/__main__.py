"""`python -m runners` lists the commands that are installed, each with the question it answers, and runs none."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from reports.shared.columns import WIDTH
from runners.cli.arguments import Parser, choice_error
from runners.cli.exits import exit_code

COMMANDS = {
    "sweep": "What utilization does training reach here, over models × batch sizes × precisions?",
    "count": "How many FLOPs does this model need, by every counter, and why do they differ?",
    "faults": "Which known faults of counters does the installed version of each still have?",
    "profile": "Where inside the model do time, FLOPs, bytes and parameters go, and what bounds each part?",
    "trace": "What does this recorded profile say once double counts and gaps are cleaned?",
    "formula": "What does this model cost, as a formula in its hyper-parameters?",
    "footprint": "How much memory does a step need, what fills it, and what is the largest batch that fits?",
    "project": "What will training at the accuracy frontier take, and on which machine?",
    "characterize": "How do workloads differ: operation mix, similarity, training against inference, parallelism?",
    "ceiling": "What can this device really do: matmul, convolution, copy?",
    "report": "Rebuild every table and figure of a run, or compare runs",
    "doctor": "Is this machine fit to measure on, and which counters, permissions and telemetry does it have?",
}


def installed(folder: Path = Path(__file__).parent) -> dict[str, str]:
    """The commands whose file or package exists, with their questions, in the order of the table."""
    return {
        name: question
        for name, question in COMMANDS.items()
        if (folder / f"{name}.py").is_file() or (folder / name / "__main__.py").is_file()
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the list; with a command's name, only its line."""
    commands = installed()
    parser = Parser(prog="python -m runners", description="Lists the commands; run one as python -m runners.NAME")
    parser.add_argument("name", nargs="?", help="show this command only")
    name = parser.parse_args(arguments).name
    if name is not None and name not in commands:
        parser.fail(choice_error("command", name, commands))
    print("Run a command as  python -m runners.NAME  and ask it with  --help\n")
    for command in [name] if name else commands:
        print(textwrap.fill(commands[command], WIDTH, initial_indent=f"  {command:<14}", subsequent_indent=" " * 16))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
