"""A profiled step on a terminal: the report of `tree.py` as rich text, in as many letters as a line has.

The tree is a table, its modules joined by lines, its bounds in the colours of the page, what takes less than a
hundredth of the step dimmed. Columns that do not fit are left out, the least asked for first; a file or a pipe gets all
of them. The verdict and what to change come last, where a terminal leaves the reader.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.profile import ModuleNode, tree
from reports.profile.operations import OperationGroup, operation_cells, operation_groups, operations_heading
from reports.profile.summary import UNKNOWN, pass_time, summary_lines
from reports.profile.tree import EXPLAINED, closing, heading, rankings, remarks
from reports.shared import COLOURS, WIDTH, digits, si
from results.records import StepProfile

if TYPE_CHECKING:
    from rich.table import Table

MOST_WIDTH = 160

NAME_LETTERS = 24
"""What the names of modules have at least."""

DIM_SHARE = 0.01


@dataclass(frozen=True)
class Column:
    """letters: how wide. rank: the higher, the sooner it is left out."""

    name: str
    letters: int
    rank: int
    said: Callable[[ModuleNode, ModuleNode], str]


def _of(written: Callable[[Any], str], amount: Callable[[ModuleNode], Any]) -> Callable[[ModuleNode, ModuleNode], str]:
    """An amount with its share of the root's."""
    return lambda node, root: f"{written(amount(node))} {_share(amount(node), amount(root))}"


def _flop(node: ModuleNode, root: ModuleNode) -> str:
    """Model FLOP with their share of the root's; no share of what is not known."""
    share = "" if root.unknown() else f" {_share(node.model_flop, root.model_flop)}"
    return f"{node.at_least()}{si(node.model_flop, '')}{share}"


def _pass(side: str, node: ModuleNode, root: ModuleNode) -> str:
    """Time in a pass with its share of the root's; no share of what is not known."""
    time_s, whole_s = (each.forward_time_s if side == "forward" else each.backward_time_s for each in (node, root))
    share = "" if root.untimed_calls.get(side) else f" {_share(time_s, whole_s)}"
    return f"{pass_time(side, time_s, node)}{share}"


COLUMNS = (
    Column("parameters", 11, 3, _of(lambda value: si(value, ""), lambda node: node.parameters)),
    Column("MAC", 6, 5, lambda node, _: f"{node.at_least('forward')}{si(node.forward_mac, '')}"),
    Column("FLOP", 11, 2, lambda node, root: _flop(node, root)),
    Column("forward", 12, 0, lambda node, root: _pass("forward", node, root)),
    Column("backward", 12, 1, lambda node, root: _pass("backward", node, root)),
    Column("FLOP/s", 6, 4, lambda node, _: UNKNOWN if node.flop_per_s is None else si(node.flop_per_s, "")),
    Column("used", 6, 0, lambda node, _: _used(node.utilization_ratio)),
    Column("bound", 10, 0, lambda node, _: node.bound or UNKNOWN),
    Column("settings", 28, 6, lambda node, _: node.settings),
)
"""After the module's name. MAC, FLOP and times as in `profile_tree`."""

WORDS = ("bound", "settings")

OPERATIONS = (("operation", 22), ("phase", 9), ("sizes", 0), ("times", 5), ("time", 7), ("share", 7), ("bound", 10))
"""Of operations: column and letters; 0: what is left."""

OPERATION_CELLS = (0, 1, 2, 3, 6, 7, 9)
"""Which of `profile_operations.cells` they are."""

OPERATION_LINES = 20


def terminal_text(
    profile: StepProfile,
    *,
    depth: int = -1,
    top: int = 1,
    detailed: bool = True,
    operations: bool = False,
    width: int = WIDTH,
    colour: bool = True,
) -> str:
    """The whole report. depth: of the innermost modules shown, -1: all. top: how many modules each ranking names.
    detailed: the tree as well. operations: the longest of them, too. colour: in that, as the environment allows."""
    from rich.console import Console
    from rich.text import Text

    nodes, width = tree(profile), min(width, MOST_WIDTH)
    root, out = nodes[""], io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=None if colour else True, highlight=False)
    if detailed:
        console.print(Text(EXPLAINED, style="dim"))
        console.print(module_table(nodes, depth, width))
    if operations:
        found = operation_groups(profile)
        console.print(Text(f"\n{operations_heading(profile, found, OPERATION_LINES)}", style="bold"))
        console.print(operation_table(profile, found[:OPERATION_LINES], width))
    console.print(Text(f"\n{heading(top)}", style="bold"))
    console.print(ranking_table(nodes, depth, top))
    console.print()
    console.print(summary_table(profile, root))
    for line in remarks(profile, root):
        console.print(Text(line, style="dim"))
    for line in ("", *closing(profile)):
        console.print(Text(line, style="bold"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def module_table(nodes: Mapping[str, ModuleNode], depth: int, width: int) -> Table:
    """The tree, a line a module."""
    from rich.text import Text

    root, columns = nodes[""], fitting_columns(width)
    table = _bare()
    table.add_column("module", no_wrap=True, overflow="ellipsis", ratio=1, min_width=NAME_LETTERS)
    for column in columns:
        right = column.name not in WORDS
        table.add_column(
            column.name, width=column.letters, justify="right" if right else "left", no_wrap=True, overflow="ellipsis"
        )
    for guide, node in guided(nodes, depth):
        name = Text.assemble((guide, "dim"), f"{f'{node.name}: ' if node.module else ''}{node.type}")
        cells = [_coloured(column, node, column.said(node, root)) for column in columns]
        table.add_row(name, *cells, style="dim" if _is_short(node, root) else "")
    return table


def fitting_columns(width: int) -> list[Column]:
    """The columns for which a line has room."""
    kept = sorted(COLUMNS, key=lambda column: column.rank)
    while kept and NAME_LETTERS + sum(column.letters + 1 for column in kept) > width:
        kept.pop()
    return [column for column in COLUMNS if column in kept]


def guided(nodes: Mapping[str, ModuleNode], depth: int = -1) -> Iterator[tuple[str, ModuleNode]]:
    """Modules as the tree lists them, each with the lines that join it to its parent, two letters a level."""
    waiting = [("", "", "")]
    while waiting:
        path, guide, under = waiting.pop()
        node = nodes[path]
        yield guide, node
        if depth >= 0 and node.depth >= depth:
            continue
        for child in reversed(node.children):
            last = child == node.children[-1]
            waiting.append((child, under + ("└ " if last else "├ "), under + ("  " if last else "│ ")))


def ranking_table(nodes: Mapping[str, ModuleNode], depth: int, top: int) -> Table:
    """The classes with the most of everything, at each depth."""
    table = _bare(expand=False)
    table.add_column("depth", justify="right", no_wrap=True)
    table.add_column("most", no_wrap=True)
    table.add_column("classes", overflow="fold")
    last = -1
    for level, words, told in rankings(nodes, depth, top):
        table.add_row(str(level) if level != last else "", words, told)
        last = level
    return table


def operation_table(profile: StepProfile, found: list[OperationGroup], width: int) -> Table:
    """The longest operations, alike ones on one line."""
    from rich.text import Text

    step_s = sum(each.time_s or 0.0 for each in operation_groups(profile)) + sum(profile.between_s.values())
    table = _bare()
    left = width - sum(letters + 1 for _, letters in OPERATIONS)
    for name, letters in OPERATIONS:
        justify: Any = "right" if name in ("times", "time", "share") else "left"
        table.add_column(name, width=letters or left, justify=justify, no_wrap=True, overflow="ellipsis")
    for each in found:
        cells = operation_cells(each, step_s)
        *row, bound = [cells[place] for place in OPERATION_CELLS]
        table.add_row(*row, Text(bound, style=COLOURS.get(bound, "")))
    return table


def summary_table(profile: StepProfile, root: ModuleNode) -> Table:
    """What is said in a dozen lines."""
    table = _bare(expand=False, show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, said in summary_lines(profile, root):
        table.add_row(name, said)
    return table


def _bare(expand: bool = True, show_header: bool = True) -> Table:
    from rich.table import Table

    return Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=expand, show_header=show_header, header_style="bold"
    )


def _coloured(column: Column, node: ModuleNode, text: str) -> Any:
    from rich.text import Text

    return Text(text, style=COLOURS[node.bound] if column.name == "bound" else "")


def _is_short(node: ModuleNode, root: ModuleNode) -> bool:
    """Whether it takes next to nothing of the step."""
    return node.time_s is not None and bool(root.time_s) and node.time_s < DIM_SHARE * (root.time_s or 0.0)


def _used(ratio: float | None) -> str:
    """In six letters."""
    if ratio is None:
        return UNKNOWN
    return "<0.001" if 0 < ratio < 0.001 else digits(ratio, 2)


def _share(part: float | None, whole: float | None) -> str:
    """In four letters: " 41%", "<1%"."""
    if part is None or not whole:
        return "".rjust(4)
    return ("<1%" if 0 < part / whole < 0.005 else f"{100 * part / whole:.0f}%").rjust(4)
