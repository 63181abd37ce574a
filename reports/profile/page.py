"""profile.html: a profiled step in one file that needs no other and no network: its modules and longest operations.

Modules are foldable and both tables sortable, each cell with the number it is sorted by. Asks no clock and writes
nothing: the same profile gives the same bytes. A short script of its own folds and sorts; the page's policy admits
that script only, and without it everything is there, unfolded. All text comes through jinja2 with escaping on.
"""

from collections.abc import Mapping

from analysis.profile.module_tree import ModuleNode, tree
from reports.profile.data import conservation_lines, module_amounts, summary_lines, time, verdict
from reports.profile.tree import OperationGroup, listed_nodes, operation_groups, sizes
from reports.shared.figure_style import BOUND_COLOURS
from reports.shared.html import PageVerdict, Section, document
from reports.shared.html_tables import Branch, Row, Table, TableCell
from reports.shared.numbers import DASH, digits, percent, si
from results.records.answers import StepProfile

MOST = 40
"""Rows of operations; all of them are in operations.csv."""


def module_table(nodes: Mapping[str, ModuleNode]) -> Table:
    """The tree, a row a module."""
    columns = (
        "module", "parameters", "MAC", "FLOP", "bytes", "forward", "backward", "waited", "FLOP/s", "used", "bound by",
    )  # fmt: skip
    listed = listed_nodes(nodes)
    return Table(
        caption="Each line is a module with all below it, and its share of the model. MAC: multiply-adds of the "
        "forward pass; FLOP: forward and backward; forward, backward: time of its operations; waited: time between "
        "them; used: utilization, waits included.",
        columns=columns,
        rows=tuple(_module_row(node, nodes[""]) for node in listed),
        words=frozenset(("module", "bound by")),
        anchor="tree",
        branches=tuple(Branch(node.module, node.depth, node.settings) for node in listed),
    )


def operations_table(profile: StepProfile) -> Table:
    """The kinds of operation that take longest."""
    found = operation_groups(profile)
    step_s = sum(each.time_s or 0.0 for each in found) + sum(profile.between_s.values())
    words = ("operation", "phase", "first module", "sizes", "bound by")
    return Table(
        caption=f"The {min(MOST, len(found))} longest of {len(found)} kinds of operation: of one name, phase and "
        "sizes. Attained: of the roof that their unit and memory allow at that intensity.",
        columns=(*words[:4], "calls", "FLOP", "bytes", "FLOP/byte", "time", "attained", words[4]),
        rows=tuple(_operation_row(each, step_s) for each in found[:MOST]),
        words=frozenset(words),
        anchor="operations-table",
    )


def _module_row(node: ModuleNode, root: ModuleNode) -> Row:
    amounts = module_amounts(node, root)
    return (
        TableCell(f"{node.name}: {node.type}" if node.module else node.type, tip=node.module),
        _of(*amounts["parameters"]),
        TableCell(*amounts["MAC"][:2]),
        _of(*amounts["FLOP"]),
        TableCell(si(node.moved_bytes, "B"), node.moved_bytes),
        _of(*amounts["forward"]),
        _of(*amounts["backward"]),
        _time(node.waited_s),
        TableCell(DASH if node.flop_per_s is None else si(node.flop_per_s, ""), node.flop_per_s),
        TableCell(DASH if node.utilization_ratio is None else digits(node.utilization_ratio), node.utilization_ratio),
        _bound(node.bound),
    )


def _operation_row(each: OperationGroup, step_s: float) -> Row:
    intensity = each.flop / each.moved_bytes if each.flop is not None and each.moved_bytes else None
    return (
        each.first.name.removeprefix("aten."),
        each.first.phase,
        each.first.module,
        sizes(each.first.input_shapes),
        TableCell(str(each.calls), each.calls),
        TableCell(DASH if each.flop is None else si(each.flop, ""), each.flop),
        TableCell(si(each.moved_bytes, "B"), each.moved_bytes),
        TableCell(DASH if intensity is None else digits(intensity), intensity),
        _of(time(each.time_s), each.time_s, step_s),
        TableCell(DASH if each.attained_ratio is None else digits(each.attained_ratio, 2), each.attained_ratio),
        _bound(each.bound),
    )


def _time(value: float | None) -> TableCell:
    return TableCell(time(value), value)


def _of(text: str, part: float | None, whole: float | None) -> TableCell:
    """An amount with its share of the whole."""
    share = part / whole if part is not None and whole else None
    text_of_share = "" if share is None else "<0.1 %" if 0 < share < 0.001 else percent(share)
    return TableCell(text, part, share=text_of_share)


def _bound(bound: str) -> TableCell:
    return TableCell(bound or DASH, None, BOUND_COLOURS[bound])


SCRIPT = "profile.js"

RULE = (
    "Rules: model FLOP are those of convolutions and matrix products, 2 a multiply-add, counted from shapes; bytes are "
    "each input once and each output once, counted from shapes, too. An operation is bound by the host where it was "
    "waited for longer than it ran, else by the largest of its arithmetic, memory and launch time at the machine's "
    "rates. Times are means over the profiled steps."
)


def page(profile: StepProfile) -> str:
    """The whole document."""
    nodes = tree(profile)
    machine = profile.machine.device_name if profile.machine else ""
    sources = profile.machine.sources.items() if profile.machine else ()
    facts = (*summary_lines(profile, nodes[""])[1:], *(("note", note) for note in profile.notes))
    sums = (*conservation_lines(profile, nodes[""]), *(f"{name}: {source}" for name, source in sources))
    sections = (
        Section("modules", "Modules", (module_table(nodes),)),
        Section("operations", "Operations", (operations_table(profile),)),
        Section("sums", "Does it add up?", (sums, RULE)),
    )
    title = " · ".join(filter(None, ("flopledger", "profile", profile.model, machine or profile.device)))
    rests_on = [(name, (text,)) for name, text in facts]
    return document(title, PageVerdict(verdict(profile), "", rests_on), sections, dense=True, more=(SCRIPT,))
