"""Writes a profiled step as text and page: the tree of modules, its operations, the largest modules, a summary.

`tree_text` and `profile_page` take a `StepProfile`. The text looks like the report of DeepSpeed's profiler. It adds the
innermost depth, the measured backward pass, and the parts of every sum. A line's parameters, FLOP and times include all
modules below. On a terminal, lines of less than a hundredth of the step are dim, and columns that do not fit are left
out. A file has all columns. Operations of equal name, phase and sizes share a line, the longest first. Their FLOP are
all arithmetic, their bytes unfused. "attained" is the share of the rate that unit and memory allow at that intensity.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from analysis.module_tree import ModuleNode, tree
from analysis.roofline import RooflinePoint, main_bound, moved_bytes, roofline_points, time_by_bound
from reports.profile import conservation, summary_lines, time, verdict
from reports.shared.figure_style import BOUND_COLOURS
from reports.shared.html import Branch, PageTable, PageVerdict, Section, TableCell, document, page_table
from reports.shared.layout import Cell, HangingIndent, Part, Prose, StyledText, TableColumn, TextTable, page, strong
from reports.shared.numbers import DASH, digits, percent, shortened_name, si
from results.records.answers import Machine, StepOperation, StepProfile

FILE_WIDTH = 10_000
"""Width of a line in a file, where nothing is cut."""

LEAST_NAME, LEAST_SETTINGS = 24, 28
"""Least widths of a module's name and of its settings."""

MODULES = (
    TableColumn("module", right=False),
    TableColumn("parameters", right=True, rank=3),
    TableColumn("MAC", right=True, rank=5),
    TableColumn("FLOP", right=True, rank=2),
    TableColumn("forward", right=True),
    TableColumn("backward", right=True, rank=1),
    TableColumn("FLOP/s", right=True, rank=4),
    TableColumn("used", right=True),
    TableColumn("bound", right=False),
    TableColumn("settings", right=False, rank=6),
)
OPERATIONS = (
    TableColumn("operation", right=False, wraps=True, least=20),
    TableColumn("phase", rank=1),
    TableColumn("sizes", right=False, wraps=True, rank=3),
    TableColumn("times", right=True, rank=2),
    TableColumn("FLOP", right=True, rank=4),
    TableColumn("bytes", right=True, rank=5),
    TableColumn("time", right=True),
    TableColumn("share", right=True),
    TableColumn("attained", right=True, rank=6),
    TableColumn("bound"),
)


def _operation_row(alike: Sequence[tuple[StepOperation, RooflinePoint]], step_s: float) -> list[Cell]:
    """Describe operations of equal name, phase and sizes. attained: least time ÷ time, over the operations for which
    both are known. bound: what limits most of their time."""
    operations, roof_points = [operation for operation, _ in alike], [roof_point for _, roof_point in alike]
    first, times_s = operations[0], [operation.time_s for operation in operations if operation.time_s is not None]
    flop = [roof_point.flop for roof_point in roof_points if roof_point.flop is not None]
    attained = [(p.attained_ratio * o.time_s, o.time_s) for o, p in alike if p.attained_ratio is not None and o.time_s]
    least_s, taken_s = sum(least for least, _ in attained), sum(taken for _, taken in attained)
    bound = main_bound(time_by_bound(operations, roof_points))
    return [
        shortened_name(first.name.removeprefix("aten."), 30),
        first.phase,
        shortened_name(sizes(first.input_shapes), 36),
        str(len(alike)),
        si(sum(flop), "") if len(flop) == len(alike) else DASH,
        si(sum(map(moved_bytes, operations)), "B"),
        time(sum(times_s) if times_s else None),
        percent(sum(times_s) / step_s) if times_s and step_s else DASH,
        digits(least_s / taken_s, 2) if attained else DASH,
        StyledText(bound or DASH, BOUND_COLOURS[bound]),
    ]


def sizes(shapes: Sequence[Sequence[object]]) -> str:
    """Write the sizes of the first two tensors: "32×3×224×224, 64×3×7×7"."""
    return ", ".join("×".join(map(str, shape)) or "1" for shape in shapes[:2])


Ranking = tuple[Callable[[ModuleNode], float | None], Callable[[float], str], Callable[[ModuleNode], bool]]

RANKED: Mapping[str, Ranking] = {
    "parameters": (lambda node: node.counted_parameters, lambda count: si(count, ""), lambda _: False),
    "forward MACs": (
        lambda node: node.forward_mac,
        lambda count: si(count, "MAC"),
        lambda node: bool(node.unknowns("forward")),
    ),
    "FLOP": (lambda node: node.model_flop, lambda count: si(count, "FLOP"), lambda node: bool(node.unknowns())),
    "forward time": (lambda node: node.forward_time_s, time, lambda node: bool(node.untimed_calls.get("forward"))),
    "backward time": (lambda node: node.backward_time_s, time, lambda node: bool(node.untimed_calls.get("backward"))),
}
"""Criterion by which modules are ranked: its amount, its text, and whether a module's amount is only "at least"."""

EXPLAINED = (
    "MAC: multiply-adds of the forward pass; FLOP: model FLOP, forward and backward; forward, backward: time of the "
    "module's operations; %: of the whole model; used: utilization, waits included; bound: what limits it for longest."
)


def tree_text(
    profile: StepProfile,
    *,
    depth: int = -1,
    top: int = 1,
    detailed: bool = True,
    operations: bool = False,
    width: int = FILE_WIDTH,
    colour: bool = False,
) -> str:
    """Return the whole report. depth: of the innermost modules shown, -1: all. top: how many classes each ranking
    names. detailed: whether the tree is shown. operations: whether the longest kinds of operation are listed."""
    nodes = tree(profile)
    root = nodes[""]
    parts: list[Part] = [strong(verdict(profile))]
    if detailed:
        parts += [Prose(EXPLAINED, "dim"), "", module_table(nodes, depth, width)]
    if operations:
        title, longest = operations_table(profile)
        parts += ["", strong(title), "", longest]
    parts += ["", *_ranking_parts(nodes, depth, top), ""]
    names = summary_lines(profile, root)
    column = max(len(name) for name, _ in names) + 1
    parts += [HangingIndent(name, description, column) for name, description in names]
    parts += [Prose(line, "dim") for line in remarks(profile, root)]
    return page([*parts, "", strong(verdict(profile))], width, colour)


def operations_table(profile: StepProfile) -> tuple[str, TextTable]:
    """Return the kinds of operation that take longest, under a title."""
    groups: dict[object, list[tuple[StepOperation, RooflinePoint]]] = defaultdict(list)
    for operation, roof_points in zip(profile.operations, roofline_points(profile), strict=True):
        if operation.time_s or moved_bytes(operation):
            key = (operation.name, operation.phase, str(operation.input_shapes), operation.dtype)
            groups[key].append((operation, roof_points))
    times_s = {key: sum(operation.time_s or 0.0 for operation, _ in alike) for key, alike in groups.items()}
    step_s = sum(times_s.values()) + sum(profile.between_s.values())
    rows = [_operation_row(groups[key], step_s) for key in sorted(groups, key=lambda key: -times_s[key])[:20]]
    calls = f"kinds of operation ({len(profile.operations)} calls)"
    return f"The {len(rows)} longest of {len(groups)} {calls}", TextTable(OPERATIONS, rows, rule=False)


def module_table(nodes: Mapping[str, ModuleNode], depth: int, width: int) -> TextTable:
    """Return the tree, a line for each module."""
    root, rows, styles = nodes[""], list[list[Cell]](), []
    letters, of_settings = max(LEAST_NAME, width // 4), max(LEAST_SETTINGS, width // 6)
    for guide, node in with_guides(nodes, depth):
        name = f"{node.name}: {node.type}" if node.module else node.type
        flop = f"{node.at_least()}{si(node.model_flop, '')}"
        amounts = [
            f"{si(node.parameters, '')} {_share(node.parameters, root.parameters)}",
            f"{node.at_least('forward')}{si(node.forward_mac, '')}",
            flop if root.unknowns() else f"{flop} {_share(node.model_flop, root.model_flop)}",
        ]
        for side in ("forward", "backward"):
            time_s, whole_s = (getattr(module, f"{side}_time_s") for module in (node, root))
            text = DASH if time_s is None else f"{node.at_least_time(side)}{time(time_s)}"
            is_partial = whole_s is None or root.untimed_calls.get(side)
            amounts.append(text if is_partial else f"{text} {_share(time_s, whole_s)}")
        used = node.utilization_ratio
        rows.append(
            [
                guide + shortened_name(name, max(2, letters - len(guide))),
                *amounts,
                DASH if node.flop_per_s is None else si(node.flop_per_s, ""),
                DASH if used is None else "<0.001" if 0 < used < 0.001 else digits(used),
                StyledText(node.bound or DASH, BOUND_COLOURS[node.bound]),
                node.settings if len(node.settings) <= of_settings else f"{node.settings[: of_settings - 1]}…",
            ]
        )
        is_short = node.time_s is not None and root.time_s and node.time_s < 0.01 * root.time_s
        styles.append("dim" if is_short else "")
    return TextTable(MODULES, rows, rule=False, styles=styles)


def remarks(profile: StepProfile, root: ModuleNode) -> list[str]:
    """Return the notes, the sums of `conservation`, and the operations that have no FLOP for lack of a rule."""
    lines = [*(f"note: {note}" for note in profile.notes), *conservation(profile, root)]
    if profile.not_understood:
        names = ", ".join(f"{name} ({calls})" for name, calls in profile.not_understood.items())
        lines.append(f'no rule counts these operations, so that totals with them are "at least" (≥): {names}')
    return lines


def aggregated_text(profile: StepProfile, depth: int = -1, top: int = 1) -> str:
    """Return the classes with the most parameters, MACs, FLOP and time at each depth down to `depth`; -1: to the
    innermost."""
    return page(_ranking_parts(tree(profile), depth, top), FILE_WIDTH)


def _ranking_parts(nodes: Mapping[str, ModuleNode], depth: int, top: int) -> list[Part]:
    """List, by depth and criterion, the `top` classes with the most; modules of unknown amount are left out."""
    levels: dict[int, list[ModuleNode]] = defaultdict(list)
    for node in nodes.values():
        if depth < 0 or node.depth <= depth:
            levels[node.depth].append(node)
    rows: list[list[Cell]] = []
    for level, modules in sorted(levels.items()):
        label = str(level)
        for measure, (amount, written, is_partial) in RANKED.items():
            sums: dict[str, float] = defaultdict(float)
            for node in modules:
                if (value := amount(node)) is not None:
                    sums[node.type] += value
            partial = {node.type for node in modules if amount(node) is not None and is_partial(node)}
            largest = sorted(sums, key=lambda name: -sums[name])[:top]
            texts = [f"{name} {'≥ ' if name in partial else ''}{written(sums[name])}" for name in largest]
            if texts:
                rows.append([label, measure, ", ".join(texts)])
                label = ""
    columns = (TableColumn("depth", right=True), TableColumn("most"), TableColumn("classes", right=False, wraps=True))
    title = f"The largest {'modules' if top != 1 else 'module'} at each depth, by class"
    return [strong(title), TextTable(columns, rows, rule=False)]


def with_guides(nodes: Mapping[str, ModuleNode], depth: int = -1) -> Iterator[tuple[str, ModuleNode]]:
    """Yield modules as the tree lists them, each with the lines that join it to its parent, two letters for
    each level."""
    waiting = [("", "", "")]
    while waiting:
        path, guide, prefix = waiting.pop()
        node = nodes[path]
        yield guide, node
        if depth >= 0 and node.depth >= depth:
            continue
        for child in reversed(node.children):
            last = child == node.children[-1]
            waiting.append((child, prefix + ("└ " if last else "├ "), prefix + ("  " if last else "│ ")))


def _share(part: float | None, whole: float | None) -> str:
    """Write a share in four letters: " 41%", "<1%"."""
    if part is None or not whole:
        return "".rjust(4)
    return ("<1%" if 0 < part / whole < 0.005 else f"{100 * part / whole:.0f}%").rjust(4)


RULE = (
    "Rules: model FLOP are those of convolutions and matrix products, 2 a multiply-add, counted from shapes; bytes are "
    "each input once and each output once, counted from shapes, too. An operation is bound by the host where it was "
    "waited for longer than it ran, else by the largest of its arithmetic, memory and launch time at the machine's "
    "rates. Times are means over the profiled steps."
)


def profile_page(profile: StepProfile) -> str:
    """Return profile.html: the summary, the tree of modules and the longest operations, in one file that needs no
    network.

    A script in the page folds modules and sorts both tables; without it the whole page is shown, unfolded. The same
    profile gives the same bytes, and all text comes through jinja2 with escaping on.
    """
    nodes = tree(profile)
    machine = profile.machine or Machine()
    modules = _page_table(module_table(nodes, -1, FILE_WIDTH), EXPLAINED, "tree")
    listed = [node for _, node in with_guides(nodes)]
    branches = tuple(Branch(node.module, node.depth, "") for node in listed)
    names = (TableCell(f"{node.name}: {node.type}" if node.module else node.type, tip=node.module) for node in listed)
    rows = tuple((name, *row[1:]) for name, row in zip(names, modules.rows, strict=True))
    title, operations = operations_table(profile)
    sources = (f"{name}: {source}" for name, source in machine.sources.items())
    sections = (
        Section("modules", "Modules", (replace(modules, rows=rows, branches=branches),)),
        Section("operations", "Operations", (_page_table(operations, title, "operations-table"),)),
        Section("sums", "Does it add up?", ((*conservation(profile, nodes[""]), *sources), RULE)),
    )
    title = " · ".join(("flopledger", "profile", profile.model, machine.device_name or profile.device))
    facts = (*summary_lines(profile, nodes[""])[1:], *(("note", note) for note in profile.notes))
    first = PageVerdict(verdict(profile), "", [(name, (text,)) for name, text in facts])
    return document(title, first, sections, dense=True, more=("profile.js",))


def _page_table(table: TextTable, caption: str, anchor: str) -> PageTable:
    rows = [[cell.text if isinstance(cell, StyledText) else cell for cell in row] for row in table.rows]
    return page_table(replace(table, rows=rows), caption, anchor) or PageTable(caption, (), ())
