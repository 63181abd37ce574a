"""A profiled step drawn: the icicle of its modules as SVG, and the roofline of its operations.

The icicle has a row a depth and a box a module, as wide as the time of its operations. The root is the whole step: its
children are the modules, then what belongs to none of them (the loss, the optimizer) and the time in which nothing ran.
A box's colour is what bounds most of its time. A module's own time is where no box hangs below it. Boxes narrower than
can be seen are left out; their space stays.

The roofline plot has operations as bubbles under the roofs of their units and of memory, log–log: right is more
arithmetic for each byte moved (unfused), up is faster, a bubble's area is its time. A solid roof was measured on this
machine, a dashed one is printed by its datasheet. Operations of one name, phase and sizes are one bubble. Those without
arithmetic have no place on it; how much time they take is said below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from analysis.profile.module_tree import OPTIMIZER, ModuleNode
from analysis.profile.roofline import BOUNDS, main_bound, places, time_by_bound
from reports.profile.summary import ratio
from reports.profile.tree import OperationGroup, operation_groups
from reports.shared import figure_panels, figure_style
from reports.shared.figure_style import BOUND_COLOURS, BOUND_WORDS
from reports.shared.numbers import percent, si, si_time
from results.records.step_profile import Machine, StepProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


LARGEST_PT = 34.0
"""Diameter of the largest bubble."""

SMALLEST_PT = 3.0
LEAST_SHARE = 2e-4
"""Share of the operations' time: what takes less is not drawn."""

NAMED = 5
MARGIN = 2.5


def roofline(profile: StepProfile) -> Figure | None:
    """The plot; None where no operation has arithmetic, bytes and a time."""
    import matplotlib.pyplot as plt

    every = operation_groups(profile)
    whole_s = sum(each.time_s or 0.0 for each in every)
    least_s = LEAST_SHARE * whole_s
    shown = [each for each in every if each.flop and each.moved_bytes and (each.time_s or 0.0) > least_s]
    if not shown:
        return None
    figure, axes = plt.subplots(figsize=(figure_style.PAGE_IN, 5.2))
    _bubbles(axes, shown)
    machine = profile.machine or Machine()
    units = list(dict.fromkeys(its.unit for each in shown for its in each.places if its.unit))
    found = [intensity(each) for each in shown]
    span = min(found) / MARGIN, max(found) * MARGIN
    _roofs(axes, machine, units, span)
    axes.set(xscale="log", yscale="log", xlim=span)
    axes.set_xlabel("FLOP for each byte moved, operation by operation")
    axes.set_ylabel("FLOP/s")
    axes.set_title(f"{profile.model}: what its operations reach, and what they could")
    axes.grid(True, which="major")
    _legend(axes, shown)
    left = max(0.0, 1 - sum(each.time_s or 0.0 for each in shown) / whole_s)
    below = _names(shown[:NAMED], whole_s, profile) + [
        f"area: time. {percent(left)} of the operations' time is in those without arithmetic, or too short to see."
    ]
    figure.tight_layout(rect=(0, 0.027 * len(below) + 0.01, 1, 1))
    _slopes(axes, machine)
    figure.text(0.02, 0.012, "\n".join(below), fontsize=7, color="0.25", linespacing=1.35)
    plt.close(figure)
    return figure


def intensity(each: OperationGroup) -> float:
    """FLOP that its unit runs, for each byte, of one that has them."""
    return (each.flop or 0) / each.moved_bytes


def _bubbles(axes: Axes, shown: Sequence[OperationGroup]) -> None:
    """The longest first, so that small ones lie on top; the very longest with their numbers."""
    most_s = max(each.time_s or 0.0 for each in shown)
    sizes = [max(SMALLEST_PT, LARGEST_PT * math.sqrt((each.time_s or 0.0) / most_s)) for each in shown]
    places = [(intensity(each), (each.flop or 0) / (each.time_s or math.inf)) for each in shown]
    axes.scatter(
        [x for x, _ in places],
        [y for _, y in places],
        s=[size**2 for size in sizes],
        c=[BOUND_COLOURS[each.bound] for each in shown],
        alpha=0.55,
        linewidth=0.4,
        edgecolor="0.2",
        zorder=3,
    )
    for number, place in enumerate(places[:NAMED], start=1):
        axes.annotate(str(number), place, fontsize=8, weight="bold", ha="center", va="center", zorder=5)


def _roofs(axes: Axes, machine: Machine, units: Iterable[str], span: tuple[float, float]) -> None:
    """One line a unit: memory's slope up to the unit's peak."""
    kinds: tuple[tuple[Mapping[str, float], float | None, str, str], ...] = (
        (machine.peak_by_unit, machine.bytes_per_s, "-", "measured here"),
        (machine.datasheet_by_unit, machine.datasheet_bytes_per_s, "--", "datasheet"),
    )
    for peaks, bandwidth, dash, words in kinds:
        known = [(unit, peaks[unit]) for unit in units if unit in peaks]
        if not known:
            continue
        for unit, peak in known:
            knee = peak / bandwidth if bandwidth else span[0]
            points = sorted({span[0], min(max(knee, span[0]), span[1]), span[1]})
            heights = [min(peak, bandwidth * at) if bandwidth else peak for at in points]
            axes.plot(points, heights, color="0.15", linewidth=1.3, linestyle=dash, zorder=2)
            axes.annotate(
                f"{unit}, {words}: {si(peak, 'FLOP/s')}", (span[1], peak), xytext=(-4, 3), ha="right",
                textcoords="offset points", fontsize=7,
            )  # fmt: skip


def _slopes(axes: Axes, machine: Machine) -> None:
    """Words along memory's slope; last, when the axes have their place."""
    for bandwidth, words in ((machine.bytes_per_s, "measured here"), (machine.datasheet_bytes_per_s, "datasheet")):
        if not bandwidth:
            continue
        left = axes.get_xlim()[0] * 1.15
        (x0, y0), (x1, y1) = axes.transData.transform([(left, bandwidth * left), (2 * left, 2 * bandwidth * left)])
        axes.annotate(
            f"memory, {words}: {si(bandwidth, 'B/s')}", (left, bandwidth * left), xytext=(2, -9),
            textcoords="offset points", fontsize=7, rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)),
            rotation_mode="anchor",
        )  # fmt: skip


def _names(shown: Sequence[OperationGroup], whole_s: float, profile: StepProfile) -> list[str]:
    """What the numbers in the bubbles stand for."""
    types = {module.module: module.type for module in profile.modules}
    lines = []
    for number, each in enumerate(shown, start=1):
        first = each.first
        where = f"{first.module} ({types[first.module]})" if types.get(first.module) else first.phase
        many = f" and {len(each.operations) - 1} like it" if len(each.operations) > 1 else ""
        share = percent((each.time_s or 0.0) / whole_s)
        lines.append(f"{number}  {first.name.removeprefix('aten.')}, {first.phase}: {where}{many}, {share} of the time")
    return lines


def _legend(axes: Axes, shown: Sequence[OperationGroup]) -> None:
    present = {each.bound for each in shown}
    marks = [
        figure_panels.mark(BOUND_WORDS[bound], marker="o", color=BOUND_COLOURS[bound], alpha=0.7, markersize=6)
        for bound in (*BOUNDS, "")
        if bound in present
    ]
    axes.legend(handles=marks, loc="upper left", fontsize=7, frameon=False, title="bound by", title_fontsize=7)
