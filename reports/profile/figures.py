"""A profiled step drawn: the icicle of its modules as SVG.

It has a row a depth and a box a module, as wide as the time of its operations. The root is the whole step: its
children are the modules, then what belongs to none of them (the loss, the optimizer) and the time in which nothing ran.
A box's colour is what bounds most of its time. A module's own time is where no box hangs below it. Boxes narrower than
can be seen are left out; their space stays.

"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from analysis.profile.module_tree import OPTIMIZER, ModuleNode
from analysis.profile.roofline import main_bound, places, time_by_bound
from reports.profile.data import ratio
from reports.shared.figure_style import BOUND_COLOURS
from reports.shared.numbers import percent, si, si_time
from results.records.answers import StepProfile

if TYPE_CHECKING:
    pass


WIDTH = 1160
ROW = 26
LEAST = 0.6
"""Width of the narrowest box, of WIDTH."""

LETTER = 6.7
"""Width of a letter at the size of the labels."""

DARK = ("arithmetic",)
"""Bounds whose colour wants light letters."""


@dataclass(frozen=True)
class Box:
    """One rectangle. path: of its module; None: no module's."""

    path: str | None
    label: str
    tip: str
    bound: str
    start: float
    width: float
    depth: int


def icicle(profile: StepProfile, nodes: Mapping[str, ModuleNode]) -> str:
    """The picture as an SVG element; "" where nothing was timed."""
    found = list(boxes(profile, nodes))
    if not found:
        return ""
    height = ROW * (1 + max(box.depth for box in found))
    head = f'<svg class="icicle" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_LABEL}">'
    return "\n".join([head, *map(_box_svg, found), "</svg>"])


def boxes(profile: StepProfile, nodes: Mapping[str, ModuleNode]) -> Iterator[Box]:
    """The rectangles, the step first. Starts and widths are of WIDTH, which is the step."""
    root = nodes[""]
    between_s = sum(profile.between_s.values())
    step_s = (root.time_s or 0.0) + between_s
    if not step_s:
        return
    scale = WIDTH / step_s
    yield Box("", root.type, _tip(root, step_s), root.bound, 0.0, WIDTH, 0)
    start = 0.0
    for path in root.children:
        yield from _below(nodes, path, start, scale, step_s)
        start += (nodes[path].time_s or 0.0) * scale
    for label, bound, time_s in (*_others(profile, nodes), ("between operations", "between", between_s)):
        if time_s * scale >= LEAST:
            tip = f"{label}\n{si_time(time_s)}, {percent(time_s / step_s)} of the step"
            yield Box(None, label, tip, bound, start, time_s * scale, 1)
        start += time_s * scale


def _below(nodes: Mapping[str, ModuleNode], path: str, start: float, scale: float, step_s: float) -> Iterator[Box]:
    """A module's box and those under it, side by side from its left edge."""
    waiting = [(path, start)]
    while waiting:
        path, start = waiting.pop()
        node = nodes[path]
        width = (node.time_s or 0.0) * scale
        if width < LEAST:
            continue
        yield Box(path, f"{node.name} {node.type}", _tip(node, step_s), node.bound, start, width, node.depth)
        for child in node.children:
            waiting.append((child, start))
            start += (nodes[child].time_s or 0.0) * scale


def _others(profile: StepProfile, nodes: Mapping[str, ModuleNode]) -> Iterator[tuple[str, str, float]]:
    """(label, bound, seconds) of the operations that belong to no module below the root."""
    inside = list(nodes[""].children)
    groups: dict[str, list[int]] = {}
    for position, operation in enumerate(profile.operations):
        if operation.time_s and not any(
            operation.module == path or operation.module.startswith(f"{path}.") for path in inside
        ):
            label = {OPTIMIZER: "optimizer", "loss": "loss"}.get(operation.phase, "the model's own")
            groups.setdefault(label, []).append(position)
    found = places(profile)
    for label, positions in groups.items():
        mine = [profile.operations[position] for position in positions]
        bound = main_bound(time_by_bound(mine, [found[position] for position in positions]))
        yield label, bound, sum(operation.time_s or 0.0 for operation in mine)


def _tip(node: ModuleNode, step_s: float) -> str:
    time_s = node.time_s or 0.0
    lines = [
        f"{node.module or 'the whole step'}: {node.type}",
        f"{si_time(time_s)} in operations, {percent(time_s / step_s)} of the step",
        f"{node.at_least()}{si(node.model_flop, 'FLOP')}",
        f"{si(node.moved_bytes, 'B')} moved, {si(node.parameters, 'parameters')}",
        f"utilization {ratio(node.utilization_ratio)}, bound by {node.bound or 'what is not known'}",
    ]
    return "\n".join(lines)


def _box_svg(box: Box) -> str:
    y = box.depth * ROW
    room = int((box.width - 8) / LETTER)
    label = box.label if len(box.label) <= room else box.label.split()[0] if len(box.label.split()[0]) <= room else ""
    text = ""
    if label:
        ink = "#fff" if box.bound in DARK else "#111"
        text = f'<text x="{box.start + 4:.2f}" y="{y + ROW * 0.68:.1f}" fill="{ink}">{escape(label)}</text>'
    module = "" if box.path is None else f' data-path="{escape(box.path, quote=True)}" class="box"'
    shape = (
        f'<rect x="{box.start:.2f}" y="{y}" width="{max(box.width - 0.4, 0.4):.2f}" height="{ROW - 1}" '
        f'fill="{BOUND_COLOURS[box.bound]}"/>'
    )
    return f"<g{module}><title>{escape(box.tip)}</title>{shape}{text}</g>"


_LABEL = "Icicle of the step: width is time, colour is what bounds it; the table of modules has the same numbers"
