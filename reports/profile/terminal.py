"""A profiled step on a terminal: the report of `tree.py` in as many letters as a line has.

The tree is a table, its modules joined by lines, its bounds in the colours of the page, what takes less than a
hundredth of the step dimmed. Columns that do not fit are left out, the least asked for first; a file or a pipe gets all
of them. The verdict and what to change come last, where a terminal leaves the reader.
"""

import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass

from analysis.profile.module_tree import ModuleNode, tree
from reports.profile.explanation import verdict
from reports.profile.summary import module_amounts, summary_lines
from reports.profile.tree import (
    EXPLAINED,
    OperationGroup,
    closing,
    guided,
    heading,
    operation_cells,
    operation_groups,
    operations_heading,
    rankings,
    remarks,
)
from reports.shared.figure_style import BOUND_COLOURS
from reports.shared.layout import WIDTH, Cell, Column, Hanging, Part, Prose, Styled, TextTable, page, strong
from reports.shared.numbers import DASH, digits, fitting, si
from results.records.step_profile import StepProfile

MOST_WIDTH = 160

NAME_LETTERS = 24
"""What the names of modules have at least."""

DIM_SHARE = 0.01


@dataclass(frozen=True)
class TreeColumn:
    """letters: how wide. rank: the higher, the sooner it is left out."""

    name: str
    letters: int
    rank: int


COLUMNS = (
    TreeColumn("parameters", 11, 3), TreeColumn("MAC", 6, 5), TreeColumn("FLOP", 11, 2), TreeColumn("forward", 12, 0),
    TreeColumn("backward", 12, 1), TreeColumn("FLOP/s", 6, 4), TreeColumn("used", 6, 0), TreeColumn("bound", 10, 0),
    TreeColumn("settings", 28, 6),
)  # fmt: skip
"""After the module's name."""

WORDS = ("bound", "settings")

OPERATIONS = (
    Column("operation", right=False, wraps=True, least=20),
    Column("phase", rank=1),
    Column("sizes", right=False, wraps=True, rank=3),
    Column("times", right=True, rank=2),
    Column("time", right=True),
    Column("share", right=True),
    Column("bound"),
)
"""Columns of the table of operations."""

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
    nodes, width = tree(profile), min(width, MOST_WIDTH)
    root = nodes[""]
    parts: list[Part] = [strong(verdict(profile))]
    if detailed:
        parts += [Prose(EXPLAINED, "dim"), "", module_table(nodes, depth, width)]
    if operations:
        found = operation_groups(profile)
        parts += ["", strong(operations_heading(profile, found, OPERATION_LINES)), ""]
        parts.append(operation_table(profile, found[:OPERATION_LINES]))
    # the classes with the most of everything, at each depth
    rows: list[list[Cell]] = []
    for level, ranked in itertools.groupby(rankings(nodes, depth, top), key=operator.itemgetter(0)):
        rows += [["" if number else str(level), words, text] for number, (_, words, text) in enumerate(ranked)]
    columns = (Column("depth", right=True), Column("most"), Column("classes", right=False, wraps=True))
    parts += ["", strong(heading(top)), TextTable(columns, rows, rule=False), ""]
    names = summary_lines(profile, root)
    column = max(len(name) for name, _ in names) + 1
    parts += [Hanging(name, description, column) for name, description in names]
    parts += [Prose(line, "dim") for line in remarks(profile, root)]
    return page([*parts, "", *map(strong, closing(profile))], width, colour)


def module_table(nodes: Mapping[str, ModuleNode], depth: int, width: int) -> TextTable:
    """The tree, a line a module."""
    root, columns = nodes[""], fitting_columns(width)
    room = width - sum(column.letters + 1 for column in columns)
    heads = [Column("module", right=False)]
    heads += [Column(column.name, right=column.name not in WORDS) for column in columns]
    rows: list[list[Cell]] = []
    for guide, node in guided(nodes, depth):
        name = fitting(f"{f'{node.name}: ' if node.module else ''}{node.type}", max(2, room - len(guide)))
        texts = _texts(node, root)
        cut = (
            Styled(
                text if len(text) <= column.letters else f"{text[: column.letters - 1]}…",
                BOUND_COLOURS[node.bound] if column.name == "bound" else "",
            )
            for column in columns
            for text in [texts[column.name]]
        )
        rows.append([guide + name, *cut])
    styles = [
        "dim" if node.time_s is not None and root.time_s and node.time_s < DIM_SHARE * root.time_s else ""
        for _, node in guided(nodes, depth)
    ]
    return TextTable(heads, rows, rule=False, styles=styles)


def _texts(node: ModuleNode, root: ModuleNode) -> dict[str, str]:
    """Column → text of a module's line; amounts with their shares of the model, where that is known."""
    amounts = {
        column: text if whole is None or column == "MAC" else f"{text} {_share(part, whole)}"
        for column, (text, part, whole) in module_amounts(node, root).items()
    }
    used = node.utilization_ratio
    return {
        **amounts,
        "FLOP/s": DASH if node.flop_per_s is None else si(node.flop_per_s, ""),
        "used": DASH if used is None else "<0.001" if 0 < used < 0.001 else digits(used, 2),
        "bound": node.bound or DASH,
        "settings": node.settings,
    }


def fitting_columns(width: int) -> list[TreeColumn]:
    """The columns for which a line has room."""
    kept = sorted(COLUMNS, key=lambda column: column.rank)
    while kept and NAME_LETTERS + sum(column.letters + 1 for column in kept) > width:
        kept.pop()
    return [column for column in COLUMNS if column in kept]


def operation_table(profile: StepProfile, groups: list[OperationGroup]) -> TextTable:
    """The longest operations, equal ones on one line."""
    step_s = sum(each.time_s or 0.0 for each in operation_groups(profile)) + sum(profile.between_s.values())
    rows: list[list[Cell]] = []
    for each in groups:
        *texts, bound = [operation_cells(each, step_s)[place] for place in OPERATION_CELLS]
        rows.append([*texts, Styled(bound, BOUND_COLOURS.get(bound, ""))])
    return TextTable(OPERATIONS, rows, rule=False)


def _share(part: float | None, whole: float | None) -> str:
    """In four letters: " 41%", "<1%"."""
    if part is None or not whole:
        return "".rjust(4)
    return ("<1%" if 0 < part / whole < 0.005 else f"{100 * part / whole:.0f}%").rjust(4)
