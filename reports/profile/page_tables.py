"""The tables of profile.html: modules, operations and fused kernels, each cell with the number it is sorted by."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.profile.module_tree import ModuleNode
from reports.profile.explanation import name_of
from reports.profile.fusion import FusedKernel, kernels
from reports.profile.operations import OperationGroup, operation_groups, sizes
from reports.profile.summary import pass_time, ratio, time
from reports.profile.tree import listed_nodes
from reports.shared.figure_style import BOUND_COLOURS
from reports.shared.html_tables import Rows, TableCell, TableRow
from reports.shared.numbers import DASH, digits, percent, si
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
    cells = (
        TableCell(f"{leader.name.removeprefix('aten.')}{where}"),
        TableCell(_following(kernel)),
        TableCell(leader.phase),
        TableCell(str(len(kernel.operations)), len(kernel.operations)),
        TableCell(si(kernel.unfused_bytes, "B"), kernel.unfused_bytes),
        TableCell(si(kernel.fused_bytes, "B"), kernel.fused_bytes),
        _time(kernel.unfused_s),
        _time(kernel.fused_s),
        _time(kernel.time_s),
    )
    return TableRow(cells)


def _following(kernel: FusedKernel) -> str:
    """What runs after the leader, in its order: kinds, each once."""
    names = list(dict.fromkeys(name_of(operation) for operation in kernel.operations[1:]))
    more = f", {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more or DASH


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
