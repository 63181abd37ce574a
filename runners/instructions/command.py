"""`python -m runners.instructions OP|MODEL …`: executed floating-point operations of an operator beside its count.

The operators run once under valgrind, with tiny tensors: half a minute for torch's import, then about a second each. Of
a model, each ATen call of a small training step is counted by itself, which takes some four minutes. `--by perf` asks
the processor's own counters instead. Exit codes: 0 answered; 1 an operator differs and no reason is known; 2 the
caller's mistake, or a tool that is missing.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runners.cli import FAILED, Mistake, Parser, add_format, choice_error, guarded, show_page

if TYPE_CHECKING:
    from analysis.instructions import InstructionComparison

ALL = "all"
COLUMNS = (
    "operator", "multiply_adds", "other_flop", "fma", "mul", "add", "other", "executed_flop", "verdict", "reason",
)  # fmt: skip
BY = ("valgrind", "perf")
SAID = {"valgrind": "Counted by valgrind, which ran AVX2 and FMA.", "perf": "Counted by the processor."}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _answer(options), options.debug)


def parser() -> Parser:
    """The parser of `runners.instructions`."""
    made = Parser(
        prog="python -m runners.instructions",
        description="Which floating-point instructions does an operator execute, beside its count?",
        epilog="What is compared, and the table of all operators: docs/instructions.md.",
    )
    made.add_argument(
        "operators",
        nargs="+",
        metavar="OP|MODEL",
        help=f"mm_16x16x16, conv2d_3x3, conv2d_3x3.backward, …, {ALL}, or a model of the catalogue by itself",
    )
    made.add_argument("--by", choices=BY, default=BY[0], help=f"what counts (default {BY[0]})")
    add_format(made, "table, csv or json (table)")
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _answer(options: Namespace) -> int:
    """Raises Mistake for a name that is not known, and where valgrind, a compiler, capstone or a counter is missing."""
    from results import Unavailable

    try:
        rows = _rows(options.operators, options.by)
    except Unavailable as fault:
        raise Mistake(str(fault)) from fault
    show_page(lambda _width, _colour: _text(rows, options.format, options.by))
    return FAILED if any(row.verdict == "unexplained" for row in rows) else 0


def _rows(asked: Sequence[str], by: str) -> list[InstructionComparison]:
    from analysis.instructions import compare_calls
    from measure.instructions import OPERATORS, count_calls, count_flop, count_instructions, flop_counters
    from runners.instructions import models
    from workloads.catalogue import ENTRIES

    if len(asked) == 1 and asked[0] in ENTRIES:
        if by != BY[0]:
            raise Mistake(f"--by {by}: expected operators, got the model {asked[0]}, whose calls valgrind counts")
        return compare_calls(count_calls(asked[0], models.MAKER), models.operations_of(asked[0]))
    names = list(OPERATORS) if list(asked) == [ALL] else list(dict.fromkeys(asked))
    for name in names:
        if name in ENTRIES:
            raise Mistake(f"expected one model by itself, or operators, got {name} among {len(names)} names")
        if name not in OPERATORS:
            raise Mistake(choice_error("operator", name, [*OPERATORS, *ENTRIES]))
    executed = count_flop(names, flop_counters()) if by == "perf" else count_instructions(names)
    return [comparison_of(name, executed[name]) for name in names]


def comparison_of(name: str, executed: Mapping[str, int]) -> InstructionComparison:
    """The operator's count by definition, from a trace on real tensors, beside what was executed."""
    import torch

    from analysis.instructions import compare_operations
    from measure.instructions import OPERATORS
    from measure.operations import trace_step

    call = OPERATORS[name]()

    def step(mark: Any) -> None:
        mark("forward")
        with torch.no_grad():
            call()  # a backward pass has its graph already

    return compare_operations(name, executed, trace_step(step, model=torch.nn.Module()).operations)


def _text(rows: Sequence[InstructionComparison], form: str, by: str) -> str:
    if form == "json":
        return json.dumps([{**_row(row), "executed": dict(row.executed)} for row in rows], indent=2)
    if form == "csv":
        return "\n".join(",".join(f'"{value}"' for value in line) for line in [COLUMNS, *map(_values, rows)])
    numbers = COLUMNS[1:-2]
    table = [f"{COLUMNS[0]:24}" + "".join(f"{name:>14}" for name in numbers) + "  verdict", *map(_line, rows)]
    verdicts = ", ".join(f"{times} {verdict}" for verdict, times in Counter(row.verdict for row in rows).items())
    tabled = sum(row.is_tabled for row in rows)
    unchecked = f" No count checks {tabled} of the reasons, which are a table's." if tabled else ""
    return "\n".join([*table, "", f"{len(rows)} operators: {verdicts}.{unchecked} {SAID[by]}"])


def _row(row: InstructionComparison) -> dict[str, Any]:
    return dict(zip(COLUMNS, _values(row), strict=True))


def _values(row: InstructionComparison) -> tuple[Any, ...]:
    from analysis.instructions import COUNTED

    lanes = row.executed
    other = sum(lanes.get(kind, 0) for kind in ("div", "sqrt", "reciprocal", "min_max", "round", "compare"))
    kinds: tuple[int | str, ...] = (lanes.get("fma", 0), lanes.get("mul", 0), lanes.get("add", 0), other)
    if COUNTED in lanes:
        kinds = ("",) * len(kinds)  # a counter's total does not say which
    flop = "" if "failed" in lanes else row.executed_flop
    return (row.name, row.multiply_adds, row.other_flop, *kinds, flop, row.verdict, row.reason)


def _line(row: InstructionComparison) -> str:
    name, *numbers, verdict, reason = _values(row)
    return (
        f"{name:24}"
        + "".join(f"{number:14,}" if number != "" else " " * 14 for number in numbers)
        + f"  {verdict}"
        + (reason and f": {reason}")
    )
