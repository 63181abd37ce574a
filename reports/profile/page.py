"""profile.html: a profiled step in one file that needs no other and no network: why its utilization is what it is.

It has an icicle of the step's time, its modules (foldable, sortable), the roofline, operations and fused kernels, each
cell of a table with the number it is sorted by. Asks no clock and writes nothing: the same profile gives the same
bytes. A short script of its own folds and sorts; the page's policy admits that script alone, and without it everything
is there, unfolded. All text comes through jinja2 with escaping on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.profile.module_tree import ModuleNode, tree
from analysis.profile.roofline import BETWEEN, BOUNDS, StepRoof, step_roof
from reports.profile.explanation import FusedKernel, Ladder, advised, explained, kernels, ladder, name_of, verdict
from reports.profile.figures import icicle
from reports.profile.summary import conservation_lines, pass_time, ratio, summary_lines, time
from reports.profile.tree import OperationGroup, listed_nodes, operation_groups, sizes
from reports.shared.figure_style import BOUND_COLOURS, BOUND_WORDS
from reports.shared.html import TABLES_SCRIPT, data_uri, natural_size, rendered
from reports.shared.html_tables import Rows, TableCell, TableRow
from reports.shared.numbers import DASH, digits, percent, si, si_time
from results.records.step_profile import StepProfile

MOST = 40
"""Rows of operations and of kernels; all of them are in operations.csv."""

_NAMED = 3


def module_rows(nodes: Mapping[str, ModuleNode]) -> Rows:
    """The tree, a row a module."""
    columns = (
        "module", "parameters", "MAC", "FLOP", "bytes", "forward", "backward", "waited", "FLOP/s", "used", "bound by",
    )  # fmt: skip
    root = nodes[""]
    return Rows(
        caption="Each line is a module with all below it, and its share of the model. MAC: multiply-adds of the "
        "forward pass; FLOP: forward and backward; forward, backward: time of its operations; waited: time between "
        "them; used: utilization, waits included.",
        columns=columns,
        rows=tuple(_module_row(node, root) for node in listed_nodes(nodes)),
        words=frozenset(("module", "bound by")),
    )


def operation_rows(profile: StepProfile) -> Rows:
    """The kinds of operation that take longest."""
    found = operation_groups(profile)
    step_s = sum(each.time_s or 0.0 for each in found) + sum(profile.between_s.values())
    words = ("operation", "phase", "first module", "sizes", "bound by")
    return Rows(
        caption=f"The {min(MOST, len(found))} longest of {len(found)} kinds of operation: of one name, phase and "
        "sizes. Attained: of the roof that their unit and memory allow at that intensity.",
        columns=(*words[:4], "calls", "FLOP", "bytes", "FLOP/byte", "time", "attained", words[4]),
        rows=tuple(_operation_row(each, step_s) for each in found[:MOST]),
        words=frozenset(words),
    )


def kernel_rows(profile: StepProfile) -> Rows | None:
    """The groups of ideal fusion whose operations take longest; None where operations are not grouped."""
    found = kernels(profile)
    if not found:
        return None
    columns = (
        "kernel", "what follows in it", "phase", "operations", "bytes one by one", "bytes fused",
        "least one by one", "least fused", "took",
    )  # fmt: skip
    return Rows(
        caption=f"The {min(MOST, len(found))} longest of {len(found)} groups. Least: the longer of arithmetic and "
        "memory traffic at the machine's rates.",
        columns=columns,
        rows=tuple(_kernel_row(kernel) for kernel in found[:MOST]),
        words=frozenset(columns[:3]),
    )


def _module_row(node: ModuleNode, root: ModuleNode) -> TableRow:
    cells = (
        TableCell(f"{node.name}: {node.type}" if node.module else node.type),
        _of(si(node.parameters, ""), node.parameters, root.parameters),
        TableCell(f"{node.at_least('forward')}{si(node.forward_mac, '')}", node.forward_mac),
        _of(
            f"{node.at_least()}{si(node.model_flop, '')}",
            node.model_flop,
            None if root.unknowns() else root.model_flop,
        ),
        TableCell(si(node.moved_bytes, "B"), node.moved_bytes),
        _pass_time("forward", node.forward_time_s, root.forward_time_s, node, root),
        _pass_time("backward", node.backward_time_s, root.backward_time_s, node, root),
        _time(node.waited_s),
        TableCell(DASH if node.flop_per_s is None else si(node.flop_per_s, ""), node.flop_per_s),
        TableCell(ratio(node.utilization_ratio), node.utilization_ratio),
        _bound(node.bound),
    )
    return TableRow(cells, node.module, node.depth, node.settings, node.module)


def _operation_row(each: OperationGroup, step_s: float) -> TableRow:
    intensity = each.flop / each.moved_bytes if each.flop is not None and each.moved_bytes else None
    cells = (
        TableCell(each.first.name.removeprefix("aten.")),
        TableCell(each.first.phase),
        TableCell(each.first.module),
        TableCell(sizes(each.first.input_shapes)),
        TableCell(str(len(each.operations)), len(each.operations)),
        TableCell(DASH if each.flop is None else si(each.flop, ""), each.flop),
        TableCell(si(each.moved_bytes, "B"), each.moved_bytes),
        TableCell(DASH if intensity is None else digits(intensity), intensity),
        _of(time(each.time_s), each.time_s, step_s),
        TableCell(DASH if each.attained_ratio is None else digits(each.attained_ratio, 2), each.attained_ratio),
        _bound(each.bound),
    )
    return TableRow(cells)


def _kernel_row(kernel: FusedKernel) -> TableRow:
    leader = kernel.leader
    where = f" {leader.module}" if leader.module else ""
    names = list(dict.fromkeys(name_of(operation) for operation in kernel.operations[1:]))
    more = f", {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    cells = (
        TableCell(f"{leader.name.removeprefix('aten.')}{where}"),
        TableCell(", ".join(names[:_NAMED]) + more or DASH),
        TableCell(leader.phase),
        TableCell(str(len(kernel.operations)), len(kernel.operations)),
        TableCell(si(kernel.unfused_bytes, "B"), kernel.unfused_bytes),
        TableCell(si(kernel.fused_bytes, "B"), kernel.fused_bytes),
        _time(kernel.unfused_s),
        _time(kernel.fused_s),
        _time(kernel.time_s),
    )
    return TableRow(cells)


def _pass_time(side: str, time_s: float | None, whole_s: float | None, node: ModuleNode, root: ModuleNode) -> TableCell:
    return _of(pass_time(side, time_s, node), time_s, None if root.untimed_calls.get(side) else whole_s)


def _time(value: float | None) -> TableCell:
    return TableCell(time(value), value)


def _of(text: str, part: float | None, whole: float | None) -> TableCell:
    """An amount with its share of the whole."""
    return TableCell(text, part, share=_share(part / whole) if part is not None and whole else "")


def _share(ratio: float) -> str:
    return "<0.1 %" if 0 < ratio < 0.001 else percent(ratio)


def _bound(bound: str) -> TableCell:
    return TableCell(bound or DASH, None, BOUND_COLOURS[bound])


TEMPLATE = "profile.html.j2"
SCRIPT = "profile.js"

ALL = 999
"""A depth that no module has."""

RULE = (
    "Rules: model FLOP are those of convolutions and matrix products, 2 a multiply-add, counted from shapes; bytes are "
    "each input once and each output once, counted from shapes, too. An operation is bound by the host where it was "
    "waited for longer than it ran, else by the largest of its arithmetic, memory and launch time at the machine's "
    "rates. Times are means over the profiled steps."
)


@dataclass(frozen=True)
class Mark:
    """A colour and what it stands for; in a bar, how wide, in percent."""

    colour: str
    text: str
    share: str = ""


@dataclass(frozen=True)
class Step:
    """One line of the ladder from arithmetic to the measured step."""

    name: str
    text: str
    share: str
    model: bool


def page(profile: StepProfile, roofline: str = "") -> str:
    """The whole document. roofline: the plot as SVG text; "": none."""
    from markupsafe import Markup

    nodes, roof = tree(profile), step_roof(profile)
    width, height = natural_size(roofline)
    size = {"width": width, "height": height}
    machine = profile.machine.device_name if profile.machine else ""
    present = [bound for bound in (*BOUNDS, BETWEEN, "") if roof.time_by_bound_s.get(bound)]
    deepest = max(node.depth for node in nodes.values())
    return rendered(
        TEMPLATE,
        (TABLES_SCRIPT, SCRIPT),
        title=" · ".join(filter(None, ("flopledger", "profile", profile.model, machine or profile.device))),
        name=profile.model,
        sentence=verdict(profile),
        facts=[*summary_lines(profile, nodes[""])[1:], *(("note", note) for note in profile.notes)],
        paragraphs=explained(profile),
        advice=advised(profile),
        steps=_steps(ladder(profile)),
        icicle=Markup(icicle(profile, nodes)),  # its texts are escaped where it is drawn
        marks=[Mark(BOUND_COLOURS[bound], BOUND_WORDS[bound]) for bound in present],
        bar=_bar(roof),
        shares="; ".join(mark.text for mark in _bar(roof)),
        modules=module_rows(nodes),
        depths=[(f"depth {depth}", depth) for depth in range(1, min(deepest, 4))] + [("all", ALL)] if deepest else [],
        roofline={"uri": data_uri(roofline), **size} if roofline else None,
        operations=operation_rows(profile),
        fused=kernel_rows(profile),
        sums=[
            *conservation_lines(profile, nodes[""]),
            *(f"{name}: {source}" for name, source in (profile.machine.sources if profile.machine else {}).items()),
        ],
        rule=RULE,
    )


def _steps(ladder: Ladder | None) -> list[Step]:
    """The ladder as bars of the longest."""
    if ladder is None:
        return []
    rungs: list[tuple[str, float | None, bool]] = [
        ("its arithmetic alone", ladder.arithmetic_s, True),
        ("ideally fused, at least", ladder.fused_s, True),
        ("one by one, about", ladder.unfused_s, True),
        ("measured", ladder.measured_s, False),
    ]
    longest = max(time_s for _, time_s, _ in rungs if time_s is not None)
    if not longest:
        return []
    return [
        Step(
            name,
            f"{si_time(time_s)}: {digits(ladder.arithmetic_s / time_s, 2)}",
            f"{100 * time_s / longest:.3f}",
            model,
        )
        for name, time_s, model in rungs
        if time_s
    ]


def _bar(roof: StepRoof) -> list[Mark]:
    return [
        Mark(BOUND_COLOURS[bound], f"{BOUND_WORDS[bound]}, {percent(share)}", f"{100 * share:.3f}")
        for bound in (*BOUNDS, BETWEEN, "")
        if (share := roof.share_by_bound.get(bound, 0.0)) > 0
    ]
